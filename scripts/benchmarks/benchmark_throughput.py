r"""Molecules a second of prepare, predict and pretrain, in one process and in several.

Each command runs for few and for many molecules; the rate is that of the difference, without the
start, and "nan" where more molecules took no more time. The efficiency is the rate of each process
beside that of the fewest processes.

    python -m scripts.benchmarks.benchmark_throughput
    python -m scripts.benchmarks.benchmark_throughput --steps predict --engines local ray \
        --processes 1 2
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from molattn.data.table import BUNDLED_TARGET, bundled_dataset
from scripts.benchmarks.benchmark_tools import unlabeled
from scripts.benchmarks.benchmarking import print_table
from scripts.benchmarks.commands import CommandError, Commands, Cost, write_smiles

STEPS = ("prepare", "predict", "pretrain")
MOLATTN = (sys.executable, "-m", "molattn")

Runner = Callable[[Sequence[str], Path], Cost]


class Case(NamedTuple):
    """A command to time.

    Args:
        step: ``prepare``, ``predict`` or ``pretrain``.
        variant: The engine, or the precision of ``pretrain``.
        processes: Number of processes that compute.
    """

    step: str
    variant: str
    processes: int

    def command(self, source: Path, model: Path, output: Path) -> list[str]:
        """Return the command for a table, or for a store with targets of pretraining."""
        if self.step == "pretrain":
            options = ["--precision", self.variant, "--devices", str(self.processes)]
            options += ["--device", "cpu", "--epochs", "1", "--validation-molecules", "100"]
            return [*MOLATTN, "pretrain", str(source), *options, "--output", str(output)]
        # 0 workers are one process: that of the command.
        workers = self.processes if self.processes > 1 or self.variant == "ray" else 0
        options = ["--engine", self.variant, "--num-workers", str(workers)]
        given = [str(model)] if self.step == "predict" else []
        suffix = ".csv" if self.step == "predict" else ""
        return [*MOLATTN, self.step, *given, str(source), *options, "--output", f"{output}{suffix}"]


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """Yield what is to be timed."""
    for step in arguments.steps:
        variants = arguments.precisions if step == "pretrain" else arguments.engines
        for variant, processes in product(variants, arguments.processes):
            yield Case(step, variant, processes)


def sources(run: Runner, place: Path, counts: Sequence[int], steps: Sequence[str]) -> list[Path]:
    """Write tables of few and of many molecules, and stores of them for ``pretrain``."""
    molecules = [*dict.fromkeys(unlabeled(counts[-1]))]
    if len(molecules) < counts[-1]:
        raise CommandError(f"--molecules: there are only {len(molecules)}")
    found = [write_smiles(place / f"{count}.csv", molecules[:count]) for count in counts]
    if "pretrain" in steps:
        for table in found:
            words = [*MOLATTN, "prepare", str(table), "--pretraining-targets", "--num-workers", "2"]
            run([*words, "--output", str(table.with_suffix(""))], place / "log.txt")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--molecules", type=int, nargs=2, default=[2000, 12000])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--engines", nargs="+", choices=["local", "ray"], default=["local"])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], help="of pretrain")
    parser.add_argument("--model", type=Path, help="to predict with; default: of bundled data")
    parser.add_argument("--rounds", type=int, default=3, help="cases take turns")
    arguments = parser.parse_args()
    few, many = arguments.molecules
    if not 0 < few < many:
        parser.error(f"--molecules: got {few} {many}, expected few and then more")
    arguments.processes.sort()
    todo = [*cases(arguments)]
    rates: dict[Case, list[tuple[float, float]]] = {case: [] for case in todo}
    with tempfile.TemporaryDirectory() as scratch, Commands() as commands:
        place, run = Path(scratch), commands.run
        model, log = arguments.model or place / "model", place / "log.txt"
        if "predict" in arguments.steps and arguments.model is None:
            words = ["train", str(bundled_dataset()), "--target-columns", BUNDLED_TARGET]
            run([*MOLATTN, *words, "--no-baselines", "--output", str(model)], log)
        tables = sources(run, place, arguments.molecules, arguments.steps)
        for number in range(arguments.rounds):
            for case in todo:
                costs = []
                for table in tables:
                    source = table.with_suffix("") if case.step == "pretrain" else table
                    output = place / "_".join(map(str, (*case, table.stem, number)))
                    costs.append(run(case.command(source, model, output), log))
                spent = np.subtract(costs[1][:2], costs[0][:2])
                rates[case].append(tuple((many - few) / np.where(spent > 0.0, spent, np.nan)))
    rows, alone = [], {}
    for case, found in rates.items():
        wall, cpu = np.median(found, axis=0)
        reference = alone.setdefault((case.step, case.variant), (case.processes, wall))
        efficiency = wall / reference[1] * reference[0] / case.processes
        # Ray's workers are no children of the command, so their time is not known.
        cpu = "" if case.variant == "ray" else f"{cpu:.0f}"
        numbers = [f"{wall:.0f}", cpu, f"{efficiency:.2f}"]
        rows.append([case.step, case.variant, str(case.processes), *numbers])
    columns = ["command", "engine or precision", "processes", "molecules/s", "molecules/CPU s"]
    print_table([*columns, "efficiency"], rows)


if __name__ == "__main__":
    try:
        main()
    except CommandError as error:
        sys.exit(str(error))
