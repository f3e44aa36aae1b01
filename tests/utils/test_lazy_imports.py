import subprocess
import sys

MODULE = """
import inspect
print("loaded")
answer = 42
def question():
    return inspect.getmodule(question).__name__
"""


def run(program, folder):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_module_is_loaded_on_first_use_and_once(tmp_path):
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "__init__.py").write_text("from . import part")
    (tmp_path / "slow" / "part.py").write_text(MODULE)
    program = """
import inspect
from molattn.utils.lazy_imports import import_lazily
import_lazily(["slow.part", "absent"])
import slow.part
for module in (inspect, slow):
    inspect.getmodule(inspect.currentframe())  # looks at every module
print(slow.part.__name__, slow.part.__spec__.name, isinstance(slow.part, type))
print(slow.part.answer, slow.part.question())
from slow.part import answer
print(answer)
try:
    import absent
except ModuleNotFoundError as error:
    print(error.name)
"""
    assert run(program, tmp_path) == [
        "slow.part slow.part False",
        "loaded",
        "42 slow.part",
        "42",
        "absent",
    ]


def test_a_loaded_module_stays_as_it_is(tmp_path):
    (tmp_path / "slow.py").write_text(MODULE)
    program = """
import slow, sys
from molattn.utils.lazy_imports import import_lazily
finders = list(sys.meta_path)
import_lazily(["slow"])
print(sys.meta_path == finders, slow.answer)
"""
    assert run(program, tmp_path) == ["loaded", "True 42"]
