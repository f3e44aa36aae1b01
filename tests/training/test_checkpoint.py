import io
import pickle
from dataclasses import replace

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from molattn.config import NetworkConfig
from molattn.errors import InputError
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.training.checkpoint import (
    CHECKPOINT_FILE,
    RUN_KEY,
    STATE_KEY,
    RunCheckpoint,
    read_checkpoint,
    write_checkpoint,
)

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["", "a.0", "é"]) | st.integers(0), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["a", "b"]), trees))
def test_what_is_read_is_what_was_written(tmp_path_factory, state):
    path = tmp_path_factory.getbasetemp() / "state.safetensors"
    write_checkpoint(path, state)
    assert read_checkpoint(path) == state


@pytest.mark.parametrize("value", [object(), {(1,): 1}, b"bytes", {1, 2}])
def test_what_needs_a_pickle_is_refused(tmp_path, value):
    with pytest.raises(TypeError):
        write_checkpoint(tmp_path / "state", {"value": value})
    assert list(tmp_path.iterdir()) == []


def test_other_files_and_every_flipped_bit_are_refused(tmp_path):
    path = tmp_path / "state"
    write_checkpoint(path, {"step": 3, "weights": torch.randn(3), "seeds": (1, [2.5, None])})
    written = path.read_bytes()
    contents = [
        b"",
        pickle.dumps({"state": 1}),
        safetensors.torch.save({"a": torch.zeros(1)}),
        *(safetensors.torch.save({}, {"molattn_checkpoint": text}) for text in ("{", "[]", "{}")),
    ]
    for index in range(len(written)):
        changed = bytearray(written)
        changed[index] ^= 1 << index % 8
        contents.append(bytes(changed))
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(InputError, match="state"):
            read_checkpoint(path)


def test_a_checkpoint_of_another_run_is_refused_with_what_differs(tmp_path):
    model = MolAttn(MolAttnConfig(("y",), NetworkConfig(width=4, heads=1, layers=1)))
    featurizer = replace(model.config.featurizer, max_distance=6)
    other = MolAttn(MolAttnConfig(("y",), model.config.network, featurizer))
    data, initial = ("a.csv: the file", "a" * 64), ("it", None)
    run = RunCheckpoint(tmp_path, {"data": data, "init_from": initial}, model)
    assert run.read() is None
    identity = run.identity
    identity["versions"]["molattn"] = "0.0.1"
    state = {RUN_KEY: identity, STATE_KEY: {"curve": [(1,)]}, "global_step": 7}
    write_checkpoint(tmp_path / CHECKPOINT_FILE, state)
    shown = io.StringIO()
    assert run.read(Console(file=shown, width=200))["global_step"] == 7
    first, last = shown.getvalue().splitlines()
    assert first.startswith("Run started with molattn 0.0.1")
    assert last == "Resuming after epoch 1, step 7"
    for changed, named in (
        ({"sources": {"data": ("a.csv: the file", "b" * 64)}}, "a.csv"),
        ({"sources": {"init_from": ("it", "c" * 64)}}, "it has"),
        ({"model": other}, "featurizer"),
    ):
        with pytest.raises(InputError, match=named):
            replace(run, **changed).read()
