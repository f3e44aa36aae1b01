"""Mutation testing: make small wrong changes to the code, and list those that no test notices.

A random sample of the changes that Cosmic Ray knows (another operator, comparison or number, a
removed ``not`` or decorator, and the like) is made in a copy of the repository, one at a time, and
tested with the test file that mirrors the changed module, or with ``--package`` with all tests of
its package.

    pip install .[mutation]
    python scripts/maintenance/mutation.py --count 200 --output mutants.csv
    python scripts/maintenance/mutation.py molattn/chem/split.py --count 50
"""

import argparse
import ast
import contextlib
import csv
import difflib
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from cosmic_ray.ast import ast_nodes, get_ast  # pyright: ignore[reportMissingImports]
from cosmic_ray.mutating import mutate_code  # pyright: ignore[reportMissingImports]
from cosmic_ray.plugins import (  # pyright: ignore[reportMissingImports]
    get_operator,
    operator_names,
)

ROOT = Path(__file__).parents[2]
PATHS = ("nn", "graph", "chem", "model", "inference", "data/splitting.py", "training/scaling.py")
# Loaded once, as each test process would need seconds for them.
PRELOADED = ["lightning", "pandas", "pytest", "rdkit.Chem", "torch_geometric.nn"]
OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
TIMES = 5  # a test run that takes so much longer notices the change, such as a loop without an end


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="modules or folders of molattn")
    parser.add_argument("--count", type=int, default=100, help="number of changes")
    parser.add_argument("--seed", type=int, default=0, help="seed of their choice")
    parser.add_argument("--package", action="store_true", help="run all tests of the package")
    parser.add_argument("--output", type=Path, default=Path("mutants.csv"), help="table of results")
    options = parser.parse_args()
    paths = options.paths or [ROOT / "molattn" / path for path in PATHS]
    counts, seconds = Counter[str](), dict[Path, float]()
    with copied_repository() as copy, open(options.output, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["module", "operator", "result", "seconds", "change"])
        for path, operator, code in sampled(paths, options.count, options.seed):
            source, module = (ROOT / path).read_text(), copy / path
            tests = tests_of(path, package=options.package)
            start = time.perf_counter()
            if tests not in seconds:
                if test(copy, tests, None) == "killed":
                    sys.exit(f"{tests}: fails without any change")
                seconds[tests] = time.perf_counter() - start
                start = time.perf_counter()
            module.write_text(code)
            result = test(copy, tests, TIMES * (10 + seconds[tests]))
            module.write_text(source)
            counts[result] += 1
            change = changed_lines(source, code)
            table.writerow([path, operator, result, f"{time.perf_counter() - start:.0f}", change])
            file.flush()
            print(f"{sum(counts.values()):4} {result:8} {path}", flush=True)
            if result == "survived":
                print(change, flush=True)
    print(", ".join(f"{count} {result}" for result, count in counts.items()))


def sampled(paths: Sequence[Path], count: int, seed: int) -> Iterator[tuple[Path, str, str]]:
    """Yield module, operator and changed code of a random sample of changes."""
    modules = [one for path in paths for one in ([path] if path.is_file() else path.rglob("*.py"))]
    rng, possible = random.Random(seed), []
    kinds: dict[str, list[str]] = {}  # the replacements of one operator, of which one is drawn
    for name in operator_names():
        if not get_operator(name).arguments():
            kinds.setdefault(name.rpartition("_")[0] or name, []).append(name)
    for module in sorted(module.resolve().relative_to(ROOT) for module in modules):
        nodes = [*ast_nodes(get_ast((ROOT / module).read_text()))]
        for names in kinds.values():
            operator = get_operator(names[0])()
            places = sum(len([*operator.mutation_positions(node)]) for node in nodes)
            possible += [(module, names, place) for place in range(places)]
    rng.shuffle(possible)
    for module, names, place in possible:
        source, name = (ROOT / module).read_text(), rng.choice(names)
        code = mutate_code(source, get_operator(name)(), place)
        if code is not None and meaning(code) not in (None, meaning(source)):
            yield module, name, code
            count -= 1
        if not count:
            return


def meaning(source: str) -> str | None:
    """Return the syntax tree without annotations, changes of which have no effect.

    None if it is not Python, such as ``/options`` for ``**options``.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
    return ast.dump(tree)


def changed_lines(source: str, code: str) -> str:
    lines = difflib.unified_diff(source.splitlines(), code.splitlines(), n=0, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++")))


def tests_of(module: Path, *, package: bool) -> Path:
    """Return the test file that mirrors a module, or the folder of tests of its package."""
    mirror = Path("tests", *module.parts[1:-1], f"test_{module.name}")
    has_mirror = (ROOT / mirror).exists() and not package
    return mirror if has_mirror else Path("tests", module.parts[1])


@contextlib.contextmanager
def copied_repository() -> Iterator[Path]:
    """Copy the files that git tracks into a temporary folder."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in filter(None, listed.stdout.decode().split("\0")):
            place = Path(folder, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, place)
        yield Path(folder)


def test(copy: Path, tests: Path, limit: float | None) -> str:
    """Run tests in the copy; return ``killed`` where one fails, ``survived`` where none does.

    After ``limit`` seconds they count as failed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=run_tests, args=(copy, tests))
    process.start()
    process.join(limit)
    if process.is_alive():
        process.kill()
        process.join()
    return "killed" if process.exitcode else "survived"


def run_tests(copy: Path, tests: Path) -> None:
    os.chdir(copy)
    sys.path.insert(0, str(copy))
    os.environ["PYTHONPATH"] = str(copy)
    # Bytecode is told from its source by size and second, which two changes can share.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    with open(os.devnull, "w") as nothing:
        for descriptor in (1, 2):
            os.dup2(nothing.fileno(), descriptor)  # noqa: TID251 (also what C libraries print)
        sys.exit(int(pytest.main([*OPTIONS, str(tests)])))


if __name__ == "__main__":
    main()
