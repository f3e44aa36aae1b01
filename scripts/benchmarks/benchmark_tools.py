"""Time the two commands, train and predict, beside those of Chemprop on the same rows.

Both tools get the same table with the same column of parts, their own defaults (Chemprop's but for
the number of epochs) and one thread, and each command is a process of its own, start-up included.
Chemprop is optional: give the Python of an environment that has it.

    python -m scripts.benchmarks.benchmark_tools --chemprop /path/to/environment/bin/python
"""

import argparse
import csv
import gzip
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from molattn.data.table import BUNDLED_TARGET, bundled_dataset
from molattn.evaluation.scores.metrics import score_tasks
from molattn.task import Task
from scripts.benchmarks.benchmarking import SHARED, print_table
from scripts.benchmarks.commands import (
    CommandError,
    Commands,
    Cost,
    chemprop_predict,
    chemprop_train,
    molattn_predict,
    molattn_train,
    read_predictions,
    write_smiles,
)

_BINARY = {"bace", "bbbp"}
_SCORES = {"regression": ("rmse", "RMSE"), "binary": ("roc_auc", "ROC-AUC")}
_START_ROWS = 64

Runner = Callable[[Sequence[str], Path], Cost]


class Problem(NamedTuple):
    """A table with the columns ``smiles``, ``y`` and ``split``, and what it is about."""

    name: str
    table: Path
    task: Task
    rows: dict[str, list[tuple[str, float]]]


class Tool(NamedTuple):
    """How to train on a problem and to predict a file of SMILES, as command lines."""

    name: str
    train: Callable[[Problem, Path], list[str]]
    predict: Callable[[Path, Path, Path], list[str]]


def molattn(name: str = "molattn", **options: object) -> Tool:
    """This package, as its command; without the random forest that other tools do not train."""
    return Tool(
        name,
        lambda problem, folder: molattn_train(problem.table, folder, options),
        molattn_predict,
    )


def chemprop(python: str, epochs: int, others: Sequence[str]) -> Tool:
    """Chemprop, by the Python of its environment; ``others`` are options as ``name=value``."""
    options = {"epochs": epochs, "pytorch_seed": 0}
    options |= dict(one.split("=", 1) for one in others)
    return Tool(
        "chemprop",
        lambda problem, folder: chemprop_train(
            python, problem.table, folder, problem.task.kind, options
        ),
        partial(chemprop_predict, python),
    )


def problem_of(name: str, place: Path) -> Problem:
    """Return a dataset beside the checkout in its first random split, or the bundled one."""
    source = SHARED / f"{name}.csv"
    if source.is_file():
        with source.open(newline="", encoding="utf-8") as file:
            _, *lines = csv.reader(file)
        split = json.loads((SHARED / "splits" / f"{name}.json").read_text())["random"][0]
        part_of = {row: part for part, rows in split.items() for row in rows}
    else:
        name = "solubility"
        with bundled_dataset().open(newline="", encoding="utf-8") as file:
            lines = [[row["smiles"], row[BUNDLED_TARGET]] for row in csv.DictReader(file)]
        order = np.random.default_rng(0).permutation(len(lines)).tolist()
        tenth = len(lines) // 10
        part_of = {
            row: "train" if rank >= 2 * tenth else ("val", "test")[rank // tenth]
            for rank, row in enumerate(order)
        }
    rows: dict[str, list[tuple[str, float]]] = {"train": [], "val": [], "test": []}
    table = place / f"{name}.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", "y", "split"])
        for row, (smiles, label) in enumerate(lines):
            if row in part_of:
                rows[part_of[row]].append((smiles, float(label)))
                writer.writerow([smiles, label, part_of[row]])
    is_binary = name in _BINARY
    task = Task("y", "binary", ("0", "1")) if is_binary else Task("y")
    return Problem(name, table, task, rows)


def test_score(problem: Problem, output: Path) -> float:
    """Score what a tool predicted of the test rows."""
    guess = read_predictions(output)[:, None]
    truth = np.array([[label] for _, label in problem.rows["test"]])
    return score_tasks(guess, truth, [problem.task]).tasks["y"][_SCORES[problem.task.kind][0]]


def unlabeled(count: int) -> list[str]:
    """Return molecules to predict: those beside the checkout, or the bundled ones, repeated."""
    source = SHARED / "unlabelled.smi.gz"
    if source.is_file():
        with gzip.open(source, "rt") as file:
            found = [line.split()[0] for line in file if line.strip()]
        chosen = np.random.default_rng(0).choice(len(found), min(count, len(found)), replace=False)
        return [found[place] for place in sorted(chosen.tolist())]
    with bundled_dataset().open(newline="", encoding="utf-8") as file:
        found = [row["smiles"] for row in csv.DictReader(file)]
    return (found * (count // len(found) + 1))[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--chemprop", metavar="PYTHON", help="Python of an environment with it")
    parser.add_argument("--data", nargs="+", default=["esol", "lipo", "bbbp"])
    parser.add_argument("--chemprop-epochs", type=int, default=50)
    parser.add_argument(
        "--chemprop-options",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="of chemprop train, such as message-hidden-dim=2048 depth=6",
    )
    parser.add_argument("--molattn-epochs", type=int, default=30)
    parser.add_argument("--init-from", default="base-minimol", help="of molattn train")
    parser.add_argument("--molecules", type=int, default=5000, help="how many to predict")
    parser.add_argument("--rounds", type=int, default=3, help="of predictions, tools in turn")
    arguments = parser.parse_args()
    if arguments.molecules <= _START_ROWS:
        parser.error(f"--molecules: got {arguments.molecules}, expected more than {_START_ROWS}")
    own = {"epochs": arguments.molattn_epochs, "init_from": arguments.init_from}
    tools = [molattn(**own), molattn("molattn_network", predictor="network", **own)]
    if arguments.chemprop:
        options = arguments.chemprop_options
        if wrong := [one for one in options if "=" not in one]:
            parser.error(f"--chemprop-options: got {wrong[0]}, expected NAME=VALUE")
        tools.append(chemprop(arguments.chemprop, arguments.chemprop_epochs, options))
    else:
        print("Chemprop is left out: no --chemprop\n")
    trained, rounds = [], []
    with tempfile.TemporaryDirectory() as scratch, Commands() as commands:
        place, run = Path(scratch), commands.run
        for name in arguments.data:
            problem = problem_of(name, place)
            for tool in tools:
                log, folder = place / "log.txt", place / f"{tool.name}_{problem.name}"
                cost = run(tool.train(problem, folder), log)
                test = write_smiles(place / "test.csv", [row[0] for row in problem.rows["test"]])
                output = place / f"{tool.name}_{problem.name}_test.csv"
                run(tool.predict(folder, test, output), log)
                trained.append(_training_row(problem, tool, cost, test_score(problem, output)))
        folders = {tool: place / f"{tool.name}_{problem.name}" for tool in tools}
        in_bf16 = tools[0]._replace(name="molattn_bf16", predict=_predict_in_bf16)
        folders[in_bf16] = folders[tools[0]]
        for _ in range(arguments.rounds):
            costs = (_prediction(run, *one, place, arguments.molecules) for one in folders.items())
            rounds.append(list(costs))
    columns = ["data", "rows", "tool", "test score", "wall, s", "CPU, s", "memory, MB"]
    print_table(columns, trained)
    print()
    columns = ["tool", "molecules/CPU s", "start-up, CPU s", "memory, MB"]
    rows = [
        [
            tool.name,
            *(f"{value:.{digits}f}" for value, digits in zip(costs, (0, 1, 0), strict=True)),
        ]
        for tool, costs in zip(folders, np.median(rounds, axis=0), strict=True)
    ]
    print_table(columns, rows)


def _predict_in_bf16(model: Path, table: Path, output: Path) -> list[str]:
    return [*molattn_predict(model, table, output), "--precision", "bf16"]


def _training_row(problem: Problem, tool: Tool, cost: Cost, score: float) -> list[str]:
    heading = _SCORES[problem.task.kind][1]
    rows = sum(map(len, problem.rows.values()))
    return [
        problem.name,
        str(rows),
        tool.name,
        f"{heading} {score:.3f}",
        f"{cost.wall:.1f}",
        f"{cost.cpu:.1f}",
        f"{cost.memory:.0f}",
    ]


def _prediction(
    run: Runner, tool: Tool, folder: Path, place: Path, count: int
) -> tuple[float, float, float]:
    """Predict few and many, so that the rate is free of the start-up.

    Returns:
        Molecules a CPU second, CPU seconds of the few, MB of memory.
    """
    molecules = unlabeled(count)
    costs = [
        run(
            tool.predict(
                folder,
                write_smiles(place / f"{len(some)}.csv", some),
                place / f"{tool.name}_{len(some)}_out.csv",
            ),
            place / "log.txt",
        )
        for some in (molecules[:_START_ROWS], molecules)
    ]
    rate = (len(molecules) - _START_ROWS) / (costs[1].cpu - costs[0].cpu)
    return rate, costs[0].cpu, costs[1].memory


if __name__ == "__main__":
    try:
        main()
    except CommandError as error:
        sys.exit(str(error))
