"""Whether the OpenAPI document is well formed, and what the server does is what it says."""

import json
import operator
from dataclasses import replace

import numpy as np
import pytest
import torch

from molattn.chem.fingerprint_index import read_fingerprints
from molattn.model.endpoints import Endpoint, Threshold
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.training_set import TrainingMolecules, TrainingSet
from molattn.serve import batching, explanations
from molattn.serve.catalog import Catalog, ServedModel

from .conftest import KNOWN, SMALL, TASKS

TOKEN = {"Authorization": "Bearer s3cret"}
JSON, LINES = "application/json", "application/x-ndjson"
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
COMPARED = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
    "const": operator.eq,
    "enum": lambda value, known: value in known,
}
PARTS = {"type", "properties", "required", "additionalProperties", "items", "anyOf", "$ref"}
WORDS = {"title", "description", "default", "examples", "format"}


def fault(value, schema, document):
    """Return how a value differs from a schema; "" = not at all. Properties must be described."""
    assert {*schema} <= PARTS | WORDS | {*COMPARED}, "a keyword that this does not check"
    if "$ref" in schema:
        return fault(value, referred(schema, document), document)
    if "anyOf" in schema:
        faults = [fault(value, one, document) for one in schema["anyOf"]]
        return "" if "" in faults else f"({'; '.join(faults)})"
    if "type" in schema:
        is_other = isinstance(value, bool) and schema["type"] != "boolean"
        if is_other or not isinstance(value, TYPES[schema["type"]]):
            return f"{value!r} is no {schema['type']}"
    for name in COMPARED.keys() & schema.keys():
        if not COMPARED[name](value, schema[name]):
            return f"{value!r} is beyond {name}"
    if isinstance(value, list):
        parts = [(one, schema["items"]) for one in value]
    elif isinstance(value, dict):
        if missing := {*schema.get("required", ())} - {*value}:
            return f"without {missing}"
        known, others = schema.get("properties", {}), schema.get("additionalProperties", False)
        parts = [(one, known.get(name, others)) for name, one in value.items()]
    else:
        return ""
    faults = [one and fault(part, one, document) if one else "unknown" for part, one in parts]
    return next(filter(None, faults), "")


def referred(schema, document):
    """Return the schema of a reference."""
    *folder, name = schema["$ref"].split("/")
    assert folder == ["#", "components", "schemas"]
    return document["components"]["schemas"][name]


def operations(document):
    return [(path, *one) for path, item in document["paths"].items() for one in item.items()]


def check(response, document):
    """Check that an answer is as described; return its operation and status."""
    path, method = response.request.url.path, response.request.method.lower()
    described = document["paths"][path][method]["responses"][str(response.status_code)]
    kind = response.headers["content-type"].partition(";")[0]
    assert kind in described["content"], response.text
    schema = described["content"][kind]["schema"]
    value = response.json() if kind == JSON else response.text
    assert not fault(value, schema, document)
    if kind == LINES:
        for line in response.text.splitlines():
            assert not fault(json.loads(line), molecule(document), document)
    headers = {name.lower(): one for name, one in described.get("headers", {}).items()}
    for name in {"retry-after", "www-authenticate", "x-molattn-rows"} & {*response.headers}:
        given = response.headers[name]
        assert not fault(int(given) if given.isdecimal() else given, headers[name]["schema"], {})
    return path, response.status_code


def molecule(document):
    return document["components"]["schemas"]["Molecule"]


@pytest.fixture(scope="module")
def models(catalog):
    """Models that have, together, all of what an answer can have."""
    torch.manual_seed(0)
    config = MolAttnConfig(TASKS, SMALL, members=2, standardize=True)
    full = MolAttn(config).eval()
    labels = np.array([[n / 5, n % 2, n % 3] for n in range(len(KNOWN))], float)
    labels[::3, 0] = np.nan
    full.calibrate(KNOWN, labels, KNOWN)
    prints = read_fingerprints(KNOWN)
    kept = TrainingMolecules.of(
        np.arange(len(KNOWN)), KNOWN, labels, prints, full.uncertainty.molecules
    )
    full.training_set = TrainingSet.of(TASKS, labels, kept)
    threshold = Threshold("soluble", low=-1)
    full.endpoints = {"logS": Endpoint("Solubility", thresholds=(threshold,), rows=24, coverage=1)}
    reference = {"logS": [*np.linspace(-3, 3, 101)]}
    others = {name: replace(one) for name, one in catalog.models.items()}
    return Catalog({"full": ServedModel("full", full, "drugs", reference), **others})


@pytest.fixture
def client(served, models):
    with served(models, token="s3cret", max_queue=256, max_molecules=9, max_request_size=1) as one:
        one.headers = TOKEN
        yield one


@pytest.fixture
def document(client):
    return client.get("/openapi.json").json()


def test_examples_are_as_described_and_are_answered(client, document):
    assert document["openapi"].startswith("3.1.")
    for path, method, operation in operations(document):
        for response in operation["responses"].values():
            for kind, content in response["content"].items():
                if "example" in content:
                    assert not fault(content["example"], content["schema"], document)
                    if kind == LINES:
                        line = json.loads(content["example"])
                        assert not fault(line, molecule(document), document)
        parameters = {}  # as the page of the document sends them
        for one in operation.get("parameters", ()):
            if "default" in one["schema"]:
                parameters[one["name"]] = one["schema"]["default"]
            elif "examples" in one["schema"]:
                parameters[one["name"]] = one["schema"]["examples"][0]
        bodies = operation.get("requestBody", {}).get("content", {None: {"example": None}})
        for kind, body in bodies.items():
            if "example" not in body:  # of other formats of files
                continue
            example, headers = body["example"], {"Content-Type": kind} if kind else {}
            if kind == JSON:
                assert not fault(example, body["schema"], document)
                example = json.dumps(example)
            response = client.request(
                method, path, params=parameters, content=example, headers=headers
            )
            assert check(response, document) == (path, 200)
            if path == "/predict":
                assert '"error":null' in response.text or response.text.endswith(",\n")


PREDICTED = [
    {"smiles": ["CCO", "C(", "OC(=O)CC.[Na]"], "neighbors": 2, "level": 0.5},
    {"smiles": ["CCO"], "model": "mixed", "partner": None},
    {
        "smiles": ["CCO", "C"],
        "model": "pair",
        "partner": ["O", "C"],
        "features": {"temperature": [1, None]},
    },
]
EXPLAINED = [
    {"smiles": "CCO", "method": "occlusion", "task": "phase", "width": 100, "height": 150},
    {"smiles": "CC", "model": "pair", "partner": "O", "features": {"temperature": 1.5}},
]
# What is wrong with each is in the schema.
MISTAKEN = [
    ("/predict", {}),
    ("/predict", {"smiles": "CCO"}),
    ("/predict", {"smiles": [1]}),
    ("/predict", {"smiles": ["C"], "smile": 1}),
    ("/predict", {"smiles": ["C"], "level": 1.0}),
    ("/predict", {"smiles": ["C"], "level": "0.9"}),
    ("/predict", {"smiles": ["C"], "level": None}),
    ("/predict", {"smiles": ["C"], "neighbors": 11}),
    ("/predict", {"smiles": ["C"], "features": {"temperature": 1.0}}),
    ("/explain", {"smiles": ["C"]}),
    ("/explain", {"smiles": "C", "method": "magic"}),
    ("/explain", {"smiles": "C", "check": 1}),
    ("/explain", {"smiles": "C", "width": 99}),
]


def test_bodies_are_refused_as_described(client, document):
    good = [("/predict", one) for one in PREDICTED] + [("/explain", one) for one in EXPLAINED]
    for status, bodies in {200: good, 422: MISTAKEN}.items():
        for path, body in bodies:
            content = document["paths"][path]["post"]["requestBody"]["content"][JSON]
            assert bool(fault(body, content["schema"], document)) == (status == 422)
            assert check(client.post(path, json=body), document) == (path, status)


def test_answers_are_as_described(client, document, monkeypatch):
    seen = set()

    def ask(path, **options):
        method = "POST" if options.keys() & {"json", "content"} else "GET"
        seen.add(check(client.request(method, path, **options), document))

    def ask_all(**options):
        for path in ("/health", "/models", "/metrics", "/depict?smiles=CCO"):
            ask(path, **options)
        ask("/predict", json={"smiles": ["C"]}, **options)
        ask("/explain", json={"smiles": "CCO"}, **options)

    ask_all()
    ask_all(headers={"Authorization": "Bearer secret"})
    ask_all(headers={"Origin": "http://example.org"})
    ask("/predict", json={"smiles": ["C", "C("], "neighbors": 3}, headers={"Accept": LINES})
    table = {"Content-Type": "text/csv"}
    ask("/predict?smiles_column=s", content="s,id\nC,1\nC(,2\n", headers=table)
    ask("/predict?neighbors=2", content="smiles\nC\n", headers={**table, "Accept": LINES})
    ask("/predict?neighbors=2", content="smiles\nC\n", headers=table)
    ask("/predict?model=none", content="smiles\nC\n", headers=table)
    ask("/predict?levels=0.5", content="smiles\nC\n", headers=table)
    ask("/predict?level=2", content="smiles\nC\n", headers=table)
    ask("/predict", content='{"smiles": "C"}\n{}\n', headers={"Content-Type": LINES})
    ask("/predict", json={"smiles": ["C"] * 10})
    for path in ("/predict", "/explain"):
        ask(path, content='{"smiles', headers={"Content-Type": JSON})
        ask(path, json={"smiles": ["C"], "model": "none"})
        ask(path, content="smiles=C", headers={"Content-Type": "text/plain"})
        ask(path, content=" " * 1_000_001, headers={"Content-Type": JSON})
    for query in ("", "?smiles=C(", "?smiles=C&other=x", "?smiles=C&width=1", "?smiles=C&size=2"):
        ask(f"/depict{query}")
    with client.guard._app.state.worker.reserve(256):
        ask_all()

    def broken(*_):
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(batching, "computed", broken)
        patch.setattr(explanations, "draw_molecule", broken)
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


def test_the_token_is_described_where_it_is_needed(client, document, served):
    (scheme,) = document["components"]["securitySchemes"].items()
    assert (scheme[1]["type"], scheme[1]["scheme"]) == ("http", "bearer")
    for path, method, operation in operations(document):
        is_needed = client.request(method, path, headers={"Authorization": ""}).status_code == 401
        assert operation.get("security", []) == [{scheme[0]: []}] * is_needed
        assert ("401" in operation["responses"]) == is_needed
    with served() as free:
        text = free.get("/openapi.json").text
        assert "Bearer" not in text
        assert '"401"' not in text
