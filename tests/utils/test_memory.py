import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from molattn.utils.memory import reuse_memory

if sys.argv[1] == "reuse":
    assert reuse_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    parts = [np.ones(2**21) for _ in range(4)]
    del parts
before = faults()
for _ in range(20):
    parts = [np.ones(2**21) for _ in range(4)]
    del parts
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_memory_is_used_again():
    as_it_is, reused = (
        int(subprocess.check_output([sys.executable, "-c", PROGRAM, word]))
        for word in ("leave", "reuse")
    )
    assert reused < 100 < as_it_is / 10


def test_the_first_collection_comes_later_and_the_others_as_ever():
    program = """
import gc
from molattn.utils.memory import postpone_collection

usual, before = gc.get_threshold(), len(gc.callbacks)
counts = []
gc.callbacks.append(lambda phase, info: counts.append(len(kept)))
postpone_collection()
kept = []
while len(kept) < 600_000:
    kept.append([])
assert gc.get_threshold() == usual and len(gc.callbacks) == before + 1
print(min(counts), len(counts) > 20)
"""
    first, several = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert 490_000 < int(first) < 510_000
    assert several == "True"
