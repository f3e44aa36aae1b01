r"""Time commands of two checkouts in turn, in CPU seconds and page faults of the whole process.

A change that is to cost no time is compared with the commit before it:

    git worktree add --detach ../before HEAD~1
    python -m scripts.benchmarks.time_commands ../before . --input long.csv --start short.csv \
        -- predict runs/solubility {input} --output /tmp/predictions.csv

Each command runs in the folder of its checkout and imports its `molattn`, with the Python that runs
this script. Relative paths in the command are in that folder: if the models of the checkouts have
different formats, train a run in each. `--start` is an input so short that the command does little
but start; the lines `work` are the difference. The checkouts take turns on one core, so that both
have the same neighbors. Ratios are medians over the rounds, with the lowest and highest.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

INPUT = "{input}"


def main() -> None:
    """Run the commands, and print the medians of both checkouts and their ratios."""
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("old", type=Path, help="folder of the checkout to compare with")
    parser.add_argument("new", type=Path, help="folder of the other checkout")
    parser.add_argument("command", nargs="+", help="words after `molattn`; write -- before them")
    parser.add_argument("--input", type=Path, help=f"file that {INPUT} in the command stands for")
    parser.add_argument("--start", type=Path, help="short file, whose time is subtracted")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each; 5 or more")
    parser.add_argument(
        "--core", type=int, help="core to run on; by default the first that is allowed"
    )
    options = parser.parse_args()
    if options.start is not None and INPUT not in options.command:
        parser.error(f"--start needs a command with the word {INPUT}, and --input")
    if hasattr(os, "sched_setaffinity"):  # Linux; child processes inherit it
        core = min(os.sched_getaffinity(0)) if options.core is None else options.core
        os.sched_setaffinity(0, {core})
    inputs = [one.resolve() for one in (options.input, options.start) if one is not None]
    commands = [
        [str(path) if word == INPUT else word for word in options.command]
        for path in inputs or [Path()]
    ]
    checkouts = options.old.resolve(), options.new.resolve()
    rounds = [
        [[cost(folder, words) for words in commands] for folder in checkouts]
        for _ in range(options.rounds)
    ]
    lines = {"command": [[both[0] for both in pair] for pair in rounds]}
    if options.start is not None:
        lines["start"] = [[both[1] for both in pair] for pair in rounds]
        lines["work"] = [
            [[long - short for long, short in zip(*both, strict=True)] for both in pair]
            for pair in rounds
        ]
    print("| | old | new | new / old |\n|---|---|---|---|")
    for name, pairs in lines.items():
        print_line(f"{name}, CPU s", [[old[0], new[0]] for old, new in pairs])
        print_line(f"{name}, page faults", [[old[1], new[1]] for old, new in pairs])


def cost(folder: Path, words: Sequence[str]) -> list[float]:
    """Return the CPU seconds and page faults of a command, its child processes included."""
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "molattn", *words]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        if process.returncode:
            sys.exit(f"{folder}: exit code {process.returncode}\n{log.read()[-2000:]}")
    return [usage.ru_utime + usage.ru_stime, usage.ru_minflt]


def print_line(name: str, pairs: Sequence[Sequence[float]]) -> None:
    """Print the medians of both checkouts, and the median and range of the ratios."""
    old, new = (median(pair[side] for pair in pairs) for side in (0, 1))
    ratios = [pair[1] / pair[0] for pair in pairs if pair[0]]
    around = f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})" if ratios else ""
    print(f"| {name} | {old:,.2f} | {new:,.2f} | {around} |", flush=True)


if __name__ == "__main__":
    main()
