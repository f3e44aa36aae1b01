"""The OpenAPI document: its examples are answered, and the answers have the statuses it names."""

import json

import pytest

from molattn.serve import batching, explanations

JSON, LINES = "application/json", "application/x-ndjson"
TABLE = {"Content-Type": "text/csv"}
TOKEN = {"Authorization": "Bearer s3cret"}


@pytest.fixture
def client(served):
    with served(token="s3cret", max_queue=256, max_molecules=9, max_request_size=1) as client:
        client.headers = TOKEN
        yield client


@pytest.fixture
def document(client):
    return client.get("/openapi.json").json()


def operations(document):
    return [(path, *one) for path, item in document["paths"].items() for one in item.items()]


def test_examples_are_answered(client, document):
    assert document["openapi"].startswith("3.1.")
    for path, method, operation in operations(document):
        parameters = {  # as the page of the document sends them
            one["name"]: one["schema"].get("default", one["schema"].get("examples", [None])[0])
            for one in operation.get("parameters", ())
            if one["schema"].keys() & {"default", "examples"}
        }
        bodies = operation.get("requestBody", {}).get("content", {None: {"example": None}})
        for kind, body in bodies.items():
            if "example" in body:
                headers = {"Content-Type": kind} if kind else {}
                content = json.dumps(body["example"]) if kind == JSON else body["example"]
                response = client.request(
                    method, path, params=parameters, content=content, headers=headers
                )
                assert response.status_code == 200
                answers = operation["responses"]["200"]["content"]
                assert response.headers["content-type"].partition(";")[0] in answers


def test_the_answers_have_the_statuses_that_are_described(client, document, monkeypatch):
    seen = set()

    def ask(path, **options):
        method = "POST" if options.keys() & {"json", "content"} else "GET"
        response = client.request(method, path, **options)
        seen.add((path.partition("?")[0], response.status_code))

    def ask_all(**options):
        for path in ("/health", "/models", "/metrics", "/depict?smiles=CCO"):
            ask(path, **options)
        ask("/predict", json={"smiles": ["C"]}, **options)
        ask("/explain", json={"smiles": "CCO"}, **options)

    ask_all()
    ask_all(headers={"Authorization": "Bearer secret"})
    ask_all(headers={"Origin": "http://example.org"})
    ask("/depict?smiles=C(")
    for path in ("/predict", "/explain"):
        ask(path, json={"smiles": 1})
        ask(path, content="smiles=C", headers={"Content-Type": "text/plain"})
        ask(path, content=" " * 1_000_001, headers={"Content-Type": JSON})
    with client.worker.reserve(256):
        ask_all()

    def broken(*_):
        raise RuntimeError

    monkeypatch.setattr(batching, "compute_rows", broken)
    monkeypatch.setattr(explanations, "draw_molecule", broken)
    ask("/predict", json={"smiles": ["C"]})
    ask("/depict?smiles=CCCC")
    # These need a client that is slow, or a fault of the server.
    described = {
        (path, int(status))
        for path, _, operation in operations(document)
        for status in operation["responses"]
        if status not in ("408", "500")
    }
    assert {one for one in seen if one[1] != 500} == described
    assert {path for path, status in seen if status == 500} == {"/predict", "/depict"}


def test_the_token_is_described_where_it_is_needed(client, document, served):
    (scheme,) = document["components"]["securitySchemes"].items()
    assert (scheme[1]["type"], scheme[1]["scheme"]) == ("http", "bearer")
    for path, method, operation in operations(document):
        is_needed = client.request(method, path, headers={"Authorization": ""}).status_code == 401
        assert operation.get("security", []) == [{scheme[0]: []}] * is_needed
    with served() as free:
        assert "Bearer" not in free.get("/openapi.json").text
