import os
import pickle
import re
import signal
import subprocess
import sys
import time

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from molattn.errors import InputError
from molattn.training.checkpoint import read_checkpoint, write_checkpoint

pytestmark = pytest.mark.usefixtures("without_figures")

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=5), trees, max_size=4))
def test_what_is_read_is_what_was_written(tmp_path_factory, state):
    path = tmp_path_factory.getbasetemp() / "state.safetensors"
    write_checkpoint(path, state)
    assert read_checkpoint(path) == state


def test_the_state_of_an_optimizer_survives_bit_for_bit(tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.randn(5, 3)).square().sum().backward()
    optimizer.step()
    path = tmp_path / "state.safetensors"
    view = torch.arange(6.0).view(2, 3).T
    kept = {"optimizer": [optimizer.state_dict()], "rng": torch.get_rng_state(), "view": view}
    write_checkpoint(path, kept)
    read = read_checkpoint(path)
    assert torch.equal(read["rng"], kept["rng"])
    assert torch.equal(read["view"], view)
    assert read["optimizer"][0]["param_groups"] == kept["optimizer"][0]["param_groups"]
    for key, moments in kept["optimizer"][0]["state"].items():
        for name, tensor in moments.items():
            back = read["optimizer"][0]["state"][key][name]
            assert back.dtype == tensor.dtype
            assert torch.equal(back, tensor)


@pytest.mark.parametrize("value", [object(), {1.5: 1}, {(1,): 2}, b"bytes", {1, 2}])
def test_what_needs_a_pickle_is_refused(tmp_path, value):
    with pytest.raises(TypeError, match="cannot hold"):
        write_checkpoint(tmp_path / "state", {"value": value})
    assert list(tmp_path.iterdir()) == []


def test_files_of_other_kinds_are_refused(tmp_path):
    path = tmp_path / "state"
    contents = [
        b"",
        b"nonsense",
        pickle.dumps({"state": 1}),
        safetensors.torch.save({"a": torch.zeros(1)}),
        safetensors.torch.save({}, {"molattn_checkpoint": "{"}),
        safetensors.torch.save({}, {"molattn_checkpoint": "[]"}),
        safetensors.torch.save({}, {"molattn_checkpoint": '{"tensor": "7"}'}),
        safetensors.torch.save({}, {"molattn_checkpoint": '{"call": "system"}'}),
        safetensors.torch.save({}, {"molattn_checkpoint": "{}"}),
    ]
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(InputError, match="state"):
            read_checkpoint(path)
    path.unlink()
    with pytest.raises(InputError, match="state"):
        read_checkpoint(path)


def test_a_killed_writer_leaves_the_former_state_or_the_next(tmp_path):
    path = tmp_path / "state"
    program = (
        "import sys, torch; from pathlib import Path\n"
        "from molattn.training.checkpoint import write_checkpoint\n"
        "for n in range(10**9):\n"
        "    write_checkpoint(Path(sys.argv[1]), {'n': n, 'big': torch.full((10**6,), n)})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(path)])
    try:
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(0.2)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    state = read_checkpoint(path)
    assert (state["big"] == state["n"]).all()


def test_every_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "state.safetensors"
    write_checkpoint(path, {"step": 3, "weights": torch.randn(3), "seeds": (1, [2.5, None])})
    written = path.read_bytes()
    for place in range(8 * len(written)):
        changed = bytearray(written)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(InputError, match=re.escape(str(path))):
            read_checkpoint(path)
