"""A run: a model trained on a case in processes of its own, and its scores."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from molattn.errors import InputError
from molattn.evaluation.scores.metrics import score_tasks
from scripts.benchmarks.commands import CommandError, Commands, read_predictions, write_smiles

from .cases import Case, Dataset, case_of
from .development import CLIFF_RMSE, SCORES
from .kinds import KINDS, Job
from .models import Ready
from .results import Result, Results, RunKey


class Run(NamedTuple):
    """A model on a case."""

    ready: Ready
    case: Case

    @property
    def key(self) -> RunKey:
        """What tells it from others."""
        return RunKey(model=self.ready.model.name, **self.case.key._asdict())

    def execute(self, commands: Commands, keep: Path | None = None) -> list[Result]:
        """Train, predict and score.

        Args:
            commands: Runs the processes.
            keep: Folder for the models, predictions and logs of all runs; otherwise they go.

        Raises:
            CommandError: A command failed, or predicted no number for a row.
        """
        with ExitStack() as stack:
            if keep is None:
                place = Path(stack.enter_context(TemporaryDirectory()))
            else:
                place = keep / "_".join(map(str, (*self.key, self.case.digest())))
                shutil.rmtree(place, ignore_errors=True)  # what an interrupted run left
                place.mkdir(parents=True)
            return self._execute(commands, place)

    def _execute(self, commands: Commands, place: Path) -> list[Result]:
        (model, python, version), case = self.ready, self.case
        scored, kind = case.scored(), KINDS[model.kind]
        job = Job(
            python=python,
            table=case.write(place / "table.csv"),
            scored=write_smiles(place / "scored.csv", [case.smiles[row] for row in scored]),
            folder=place / "run",
            output=place / "predictions.csv",
            task=case.task.kind,
            seed=case.seed,
            options=model.options,
        )
        costs = [commands.run(words, place / "log.txt") for words in kind.steps(job)]
        predicted = read_predictions(job.output)
        if kind.predicts_table:
            in_table = sorted(row for rows in case.rows.values() for row in rows)
            predicted = predicted[np.isin(in_table, scored)]
        known = np.isfinite(predicted)
        if len(known) != len(scored) or not known.all():
            raise CommandError(
                f"{self.key}: {int(known.sum())} rows are predicted, expected {len(scored)}"
            )
        truth, digest = case.labels[scored], case.digest()
        scores = score_tasks(predicted[:, None], truth[:, None], [case.task]).tasks["y"]
        if case.cliffs is not None and (cliffs := case.cliffs[scored]).any():
            scores[CLIFF_RMSE] = score_tasks(
                predicted[cliffs, None], truth[cliffs, None], [case.task]
            ).tasks["y"]["rmse"]
        return [
            Result(
                **self.key._asdict(),
                kind=model.kind,
                metric=metric,
                value=scores[metric],
                train_rows=len(case.rows["train"]),
                cpu_seconds=round(costs[0].cpu, 2),
                wall_seconds=round(costs[0].wall, 2),
                version=version,
                options=model.options_text,
                digest=digest,
            )
            for metric in SCORES
            if scores.get(metric) is not None
        ]


def runs_to_do(
    models: Sequence[Ready],
    data: Sequence[Dataset],
    splits: Sequence[str] | None,
    seeds: Sequence[int],
    part: str,
) -> Iterator[Run]:
    """Yield all runs, a whole comparison of the first seed before the second begins.

    Without ``splits``, those of each dataset.
    """
    for seed in seeds:
        for dataset in data:
            for split in splits or dataset.methods:
                case = case_of(dataset, split, seed, part)
                yield from (Run(ready, case) for ready in models)


def without_done(runs: Sequence[Run], results: Results) -> list[Run]:
    """Return the runs that have no row yet.

    Raises:
        InputError: A run that has one was made with other options, or its case of other data.
    """
    cases = {run.case.key: run.case for run in runs}
    results.check({key: case.digest() for key, case in cases.items()})
    options = {result.run: result.options for result in results.read()}
    for run in runs:
        was, now = options.get(run.key), run.ready.model.options_text
        if was not in (None, now):
            raise InputError(
                f"{results.path}: {run.key} has the options {was}, but the model has {now}; "
                "give it another name, or write into another file"
            )
    return [run for run in runs if run.key not in options]
