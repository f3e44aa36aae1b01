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
