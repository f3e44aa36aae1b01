"""Count the Python statements of each package of molattn, and check or write their limits.

A limit is today's count and 5%. Statements are counted, not lines: whoever splits a packed line
into plain ones stays within the limit.
"""

import argparse
import ast
import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMITS = ROOT / "budget.toml"
HEADER = """\
# Limits of each package of molattn (its modules outside packages: top).
# statements: by scripts/counts/count_statements.py --write, all others: by check_names.py there.
"""


def package_modules() -> Iterator[tuple[str, Path]]:
    """Yield each module of molattn after the name of its package, or after `top` without one."""
    package = ROOT / "molattn"
    for path in sorted(package.rglob("*.py")):
        folder, *_ = [*path.relative_to(package).parts[:-1], "top"]
        yield folder, path


def count_statements() -> Counter[str]:
    """Return the number of statements of each package of molattn."""
    counts: Counter[str] = Counter()
    for folder, path in package_modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        counts[folder] += sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
    return counts


def read_limits(section: str = "statements") -> dict[str, int]:
    """Return the limits of one section of budget.toml."""
    return tomllib.loads(LIMITS.read_text(encoding="utf-8")).get(section, {})


def write_limits(section: str, limits: Mapping[str, int]) -> None:
    """Replace one section of budget.toml; a section without limits goes."""
    sections = tomllib.loads(LIMITS.read_text(encoding="utf-8")) | {section: limits}
    tables = [
        f"\n[{name}]\n" + "".join(f"{key} = {limit}\n" for key, limit in sorted(table.items()))
        for name, table in sections.items()
        if table
    ]
    LIMITS.write_text(HEADER + "".join(tables), encoding="utf-8")


def main() -> None:
    """Print the count of each package beside its limit, and write new limits where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="write today's counts and 5% as limits"
    )
    parser.add_argument("--check", action="store_true", help="fail above a limit")
    options = parser.parse_args()
    counts = dict(sorted(count_statements().items()))
    if options.write:
        limits = {folder: math.ceil(1.05 * count) for folder, count in counts.items()}
        write_limits("statements", limits)
    limits = read_limits()
    for folder, count in counts.items():
        print(f"{folder:12s} {count:6d} of {limits.get(folder, 0):6d}")
    print(f"{'all':12s} {sum(counts.values()):6d}")
    if options.check and any(count > limits.get(folder, 0) for folder, count in counts.items()):
        raise SystemExit("budget.toml: more statements than a limit")


if __name__ == "__main__":
    main()
