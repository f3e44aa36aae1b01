import pytest

from .test_app import CSV, error

PATHS = ["/models", "/metrics", "/depict?smiles=CC"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:80", "LOCALHOST:1"])
def test_names_of_this_machine_are_answered(client, host):
    assert client.get("/models", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["example.org", "localhost.example.org:8000", "127.0.0.1.example.org", "", "[::2]", "8"]
)
def test_other_names_are_refused(client, host):
    for path in ("/", *PATHS):
        assert error(client.get(path, headers={"Host": host}), 403) == "wrong_host"
    response = client.post("/predict", json={"smiles": ["C"]}, headers={"Host": host})
    assert error(response, 403) == "wrong_host"


def test_pages_of_other_origins_are_refused(client):
    for origin in ("http://example.org", "null", "http://localhost:81", "http://[", "localhost"):
        headers = {"Origin": origin}
        response = client.post("/predict", json={"smiles": ["C"]}, headers=headers)
        assert error(response, 403) == "wrong_origin"
        asked = {**headers, "Access-Control-Request-Method": "POST"}
        response = client.options("/predict", headers=asked)
        assert error(response, 403)
        assert not [name for name in response.headers if name.startswith("access-control")]
    own = {"Origin": "http://localhost"}
    response = client.post("/predict", json={"smiles": ["C"]}, headers=own)
    assert response.status_code == 200
    assert not [name for name in response.headers if name.startswith("access-control")]
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"]


def test_a_token_is_needed_for_all_but_the_pages(served):
    with served(host="0.0.0.0", token="s3cret") as client:
        for path in ("/", "/docs", "/openapi.json", "/health"):
            assert client.get(path, headers={"Host": "a.example.org"}).status_code == 200
        for path in PATHS:
            for given in (None, "Bearer ", "Bearer s3cre", "Basic s3cret", "s3cret"):
                headers = {} if given is None else {"Authorization": given}
                response = client.get(path, headers=headers)
                assert error(response, 401) == "token"
                assert response.headers["www-authenticate"] == "Bearer"
            known = {"Authorization": "Bearer s3cret", "Host": "a.example.org"}
            assert client.get(path, headers=known).status_code == 200
        assert error(client.get(f"{PATHS[0]}?token=s3cret"), 401) == "token"


def test_too_much_waiting_is_refused_until_later(served):
    with served(max_queue=256, max_molecules=256) as client:
        worker = client.guard._app.state.worker
        with worker.reserve(255):
            for response in (
                client.post("/predict", json={"smiles": ["C", "C"]}),
                client.post("/predict", content="smiles\nC\n", headers=CSV),
                client.post("/explain", json={"smiles": "CC"}),
            ):
                assert error(response, 429) == "busy"
                assert int(response.headers["retry-after"]) >= 1
            assert client.post("/predict", json={"smiles": ["C"]}).status_code == 200
        assert client.post("/predict", content="smiles\nC\n", headers=CSV).status_code == 200
        assert worker.reserved == 0
