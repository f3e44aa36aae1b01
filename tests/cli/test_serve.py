import socket
import sys

import pytest

from molattn.cli import main
from molattn.config import NetworkConfig
from molattn.model.model import MolAttn, MolAttnConfig

from .test_program import loaded_by, refused


@pytest.fixture(scope="module")
def model():
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    return MolAttn(MolAttnConfig(("y",), small)).eval()


@pytest.fixture(autouse=True)
def _no_token(monkeypatch):
    monkeypatch.delenv("MOLATTN_TOKEN", raising=False)


@pytest.mark.parametrize(
    "options, words",
    [
        (["--port", "70000"], "--port: got '70000'"),
        (["--host", "0.0.0.0"], "--host 0.0.0.0: other machines can reach this address"),
        (["--host", "0.0.0.0", "--token", ""], "other machines"),
        (["--host", "example.org"], "other machines"),
        (["--host", ""], "--host: got ''"),
        (["--token", "a\tb"], "--token: expected printable"),
        (["--token", "secret "], "--token: expected printable ASCII characters without spaces"),
        (["--max-queue", "100"], "--max-queue: got 100, expected at least --max-molecules"),
        (["--batch-size", "0"], "--batch-size: got '0'"),
        (["--device", "tpu"], "--device: got 'tpu'"),
        (["--port", "0", "--reference", "missing.csv"], "missing.csv: no such file"),
    ],
)
def test_wrong_options_are_told_in_a_line(model_folder, capsys, options, words):
    assert words in refused(capsys, 2, ["serve", model_folder, *options])


def test_wrong_models_are_told_in_a_line(model_folder, tmp_path, capsys):
    assert "nothing: no such folder" in refused(capsys, 2, ["serve", "nothing", "--port", "0"])
    assert "no such folder" in refused(capsys, 2, ["serve", tmp_path / "none", "--port", "0"])
    line = refused(capsys, 2, ["serve", model_folder, model_folder, "--port", "0"])
    assert "another model is named" in line


def test_a_port_that_is_taken_is_told_in_a_line(model_folder, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused(capsys, 2, ["serve", model_folder, "--port", port])
    assert f"--host 127.0.0.1 --port {port}: Address already in use" in line


@pytest.mark.parametrize(
    "package", ["fastapi", "uvicorn", "prometheus_client", "swagger_ui_bundle"]
)
def test_a_missing_package_is_told_in_a_line(model_folder, capsys, monkeypatch, package):
    for name in [one for one in sys.modules if one.startswith("molattn.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    line = refused(capsys, 2, ["serve", model_folder])
    assert f"needs the package {package}" in line
    assert "pip install 'molattn[serve]'" in line


def test_help_teaches_and_loads_nothing_heavy(capsys):
    assert main(["serve", "--help"]) == 0
    shown = capsys.readouterr().out
    for words in ("--host", "--token", "MOLATTN_TOKEN", "--max-queue", "curl", "--reference"):
        assert words in shown
    assert loaded_by("serve", "--help") == set()
