"""Refuse vague names in molattn, and lines with several assignments.

A name is bound where it is assigned, is an argument, or is the variable of a loop. Three rules:

- No bound name is vague: `for molecule in molecules` says what it holds, `for one in molecules`
  does not. A line that is better with a vague name gives its reason in a comment,
  `# name: REASON`, at most ten times in all.
- Empty words, which easily take the place of vague ones, become no more frequent.
- A package has at most 5 assignments such as `a, b = x, y` per 1,000 lines of code. Unpacking one
  value is not counted.

budget.toml holds how often each empty word occurs, and the numbers of packages that do not meet the
other rules yet. `--write` lowers these numbers, and raises none.
"""

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from count_statements import ROOT, package_modules, read_limits, write_limits

VAGUE = set(
    "one ones found known own kept given chosen some place places shown rest told said thing things"
    " left such".split()
)
EMPTY = set("item result got done other part entry obj".split())
REASON = re.compile(r"# name: \w")
RULES = {
    "vague_names": "vague name",
    "empty_names": "empty name",
    "several_assignments": "several assignments on one line",
    "exceptions": "exception to the rule on vague names",
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
MOST_EXCEPTIONS = 10
MOST_SEVERAL = 5 / 1000  # per line of code


class Finding(NamedTuple):
    """One place in the code that a rule is about; `counted` is what has the limit."""

    rule: str
    counted: str
    path: Path
    line: int
    text: str


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each bound name and its line."""
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name, node.lineno


def check_module(package: str, path: Path) -> Iterator[Finding]:
    """Yield what the rules are about in one module."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    tree = ast.parse(source)
    for name, line in bound_names(tree):
        if name in EMPTY:
            yield Finding("empty_names", name, path, line, name)
        elif name in VAGUE and REASON.search(lines[line - 1]):
            yield Finding("exceptions", "all", path, line, name)
        elif name in VAGUE:
            yield Finding("vague_names", package, path, line, name)
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Tuple() as target], value=ast.Tuple()):
                text = ast.unparse(target)
                yield Finding("several_assignments", package, path, node.lineno, text)


def count_code(path: Path) -> int:
    """Return the number of lines that are neither empty nor a comment or docstring."""
    source = path.read_text(encoding="utf-8")
    documentation: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            first = node.body[0]
            documentation.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return sum(
        line.strip()[:1] not in ("", "#") and number not in documentation
        for number, line in enumerate(source.splitlines(), 1)
    )


def final_limits(modules: Iterable[tuple[str, Path]]) -> dict[str, dict[str, int]]:
    """Return the limits above 0 that hold for packages that budget.toml does not name."""
    code: Counter[str] = Counter()
    for package, path in modules:
        code[package] += count_code(path)
    several = {package: int(MOST_SEVERAL * lines) for package, lines in code.items()}
    return {"exceptions": {"all": MOST_EXCEPTIONS}, "several_assignments": several}


def refused(findings: Iterable[Finding], limits: Mapping[str, Mapping[str, int]]) -> list[Finding]:
    """Return all findings of which there are more than the limit."""
    findings = list(findings)
    counts = Counter((finding.rule, finding.counted) for finding in findings)
    return [
        finding
        for finding in findings
        if counts[finding.rule, finding.counted]
        > limits.get(finding.rule, {}).get(finding.counted, 0)
    ]


def lower_limits(findings: Iterable[Finding], final: Mapping[str, Mapping[str, int]]) -> None:
    """Write today's numbers into budget.toml where they are below its limits."""
    counts = Counter((finding.rule, finding.counted) for finding in findings)
    for rule in ("vague_names", "empty_names", "several_assignments"):
        lowered = {
            counted: min(limit, counts[rule, counted])
            for counted, limit in read_limits(rule).items()
            if counts[rule, counted] > final.get(rule, {}).get(counted, 0)
        }
        write_limits(rule, lowered)


def main() -> int:
    """Print what is refused, and return 1 if anything is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="lower the limits to today's numbers")
    options = parser.parse_args()
    modules = list(package_modules())
    findings = [finding for package, path in modules for finding in check_module(package, path)]
    final = final_limits(modules)
    if options.write:
        lower_limits(findings, final)
    limits = {rule: final.get(rule, {}) | read_limits(rule) for rule in RULES}
    offences = refused(findings, limits)
    for finding in sorted(offences):
        location = f"{finding.path.relative_to(ROOT)}:{finding.line}"
        limit = limits[finding.rule].get(finding.counted, 0)
        rule = f"{RULES[finding.rule]}, at most {limit} in {finding.counted}"
        print(f"{location}: {finding.text} ({rule})")
    return bool(offences)


if __name__ == "__main__":
    raise SystemExit(main())
