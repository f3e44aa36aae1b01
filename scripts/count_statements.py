"""Count the Python statements of each package of molattn, and write the limits that a test holds.

A limit is today's count and 5%. Statements are counted, not lines: whoever splits a packed line
into plain ones stays within the limit.
"""

import argparse
import ast
import math
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMITS = ROOT / "budget.toml"
HEADER = """\
# Most Python statements of each package of molattn (its modules outside packages: top).
# Written by scripts/count_statements.py --write.
"""


def count_statements() -> Counter[str]:
    """Statements of each package of molattn; of the modules outside packages together, as `top`."""
    counts: Counter[str] = Counter()
    package = ROOT / "molattn"
    for path in package.rglob("*.py"):
        folder, *_ = [*path.relative_to(package).parts[:-1], "top"]
        tree = ast.parse(path.read_text(encoding="utf-8"))
        counts[folder] += sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
    return counts


def read_limits() -> dict[str, int]:
    """Return the limits in budget.toml."""
    return tomllib.loads(LIMITS.read_text(encoding="utf-8"))


def main() -> None:
    """Print the count of each package beside its limit, and write new limits where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="write today's counts and 5% as limits"
    )
    options = parser.parse_args()
    counts = dict(sorted(count_statements().items()))
    if options.write:
        rows = (f"{folder} = {math.ceil(1.05 * count)}\n" for folder, count in counts.items())
        LIMITS.write_text(HEADER + "".join(rows), encoding="utf-8")
    limits = read_limits()
    for folder, count in counts.items():
        print(f"{folder:12s} {count:6d} of {limits.get(folder, 0):6d}")
    print(f"{'all':12s} {sum(counts.values()):6d}")


if __name__ == "__main__":
    main()
