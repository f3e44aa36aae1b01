"""What SECURITY.md promises."""

import pickle
import re
import socket
from pathlib import Path

import pytest
import torch

from molattn.chem import parse
from molattn.cli import main
from molattn.config import MoleculeLimits
from molattn.data.table.base import MOST_CHARACTERS, MOST_COLUMNS
from molattn.utils import time_limit

TEXT = " ".join((Path(__file__).parents[1] / "SECURITY.md").read_text(encoding="utf-8").split())
TRAIN = "train in.csv --target-columns y --output run --epochs 1 --init-from none --no-baselines"
NETWORK = "--width 8 --heads 2 --layers 1 --bootstrap 0 --device cpu"


def test_commands_use_no_network_and_unpickle_no_file(tmp_path, monkeypatch):
    def refuse(*_, **__):
        pytest.fail("not allowed")

    for module, name in [
        (socket.socket, "connect"),
        (socket, "getaddrinfo"),
        (pickle, "loads"),
        (torch, "load"),
    ]:
        monkeypatch.setattr(module, name, refuse)
    load = pickle.load

    def load_of_child(file):  # the pipe to the process that reads large molecules
        assert isinstance(file.name, int)
        return load(file)

    monkeypatch.setattr(pickle, "load", load_of_child)
    monkeypatch.chdir(tmp_path)
    rows = [f"{'C' * n}O,{n}" for n in (*range(1, 31), 210)]
    Path("in.csv").write_text("\n".join(["smiles,y", *rows]))
    assert main([*TRAIN.split(), *NETWORK.split()]) == 0
    assert main(["predict", "run", "in.csv", "--output", "out.csv"]) == 0
    assert main(["explain", "run", "in.csv", "--output", "explained", "--limit", "2"]) == 0
    assert time_limit._idle


def test_stated_limits_are_those_of_the_readers():
    stated = {int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\d", TEXT)}
    assert {MOST_CHARACTERS, MOST_COLUMNS, MoleculeLimits().max_length} <= stated
    assert {MoleculeLimits().max_atoms, parse._MAX_NESTING} <= stated
