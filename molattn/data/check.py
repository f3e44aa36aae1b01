"""Check a table before a model is trained on it: the report of ``molattn check``."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from rdkit import Chem

from molattn.chem.featurizer import FEATURIZERS
from molattn.config import DataConfig
from molattn.data.dataset import TrainingTable, describe_tasks, read_training_table
from molattn.data.splitting import conflicting_rows, proposed_split, same_molecule
from molattn.data.table import Table
from molattn.errors import quoted
from molattn.utils.console import counted

_DECADES = 2.5  # orders of magnitude that labels in log units do not span
_RARE = 0.05  # a class with fewer of the labels
_UNSPECIFIED = Chem.StereoSpecified.Unspecified


class Problem(NamedTuple):
    """A problem of a row: where it is, its molecule as written, a name and an explanation."""

    line: int
    smiles: str
    problem: str
    reason: str


class TableCheck(NamedTuple):
    """The problems of the rows of a table in order, and lines that describe it as a whole.

    ``config`` has the options that suit it in training.
    """

    problems: list[Problem]
    lines: list[str]
    config: DataConfig


def check_table(table: Table, config: DataConfig) -> TableCheck:
    """Read a table as a training does, and list what may be wrong with it.

    Problems of rows are: a reason code of :data:`molattn.errors.REASONS`, for a row that is not
    used; ``label``, for a cell that is not read in a row with other labels; ``duplicate``, of a
    molecule in an earlier row; ``conflict``, if the label is another than in a row of the same
    molecule; ``mixture``; ``drawing``, for a molecule that is redrawn; and ``stereo``, for centers
    or double bonds without a configuration.

    Raises:
        InputError: No model can be trained on it.
    """
    read = read_training_table(table, config, FEATURIZERS[config.featurizer]())
    problems = [Problem(row.line, row.smiles, row.code, row.reason) for row in read.skipped]
    problems += [Problem(row.line, row.smiles, "label", row.reason) for row in read.all_unreadable]
    problems += _problems(read)
    counts = Counter(problem.problem for problem in problems)
    skipped = Counter(row.code for row in read.skipped)
    reasons = ", ".join(f"{count} {code}" for code, count in skipped.most_common())
    used = f"{counted(read.rows_in, 'row')}: {len(read.rows):,} used, {len(read.skipped):,} not"
    remarks = [f"{used} ({reasons})" if reasons else used, *read.remarks]
    if read.auxiliary is not None:
        remarks += [f"auxiliary {remark}" for remark in read.auxiliary.remarks]
    for name, text in {
        "duplicate": "of a molecule in an earlier row",
        "conflict": "with another label than a row of the same molecule",
        "mixture": "of salts or mixtures (--standardize: the largest fragment, neutral)",
        "drawing": "of molecules that are read in another usual drawing",
        "stereo": "of molecules without a configuration at some center or double bond",
    }.items():
        if counts[name]:
            remarks.append(f"{name}: {counted(counts[name], 'row')} {text}")
    hints = [hint for index in range(len(read.tasks)) for hint in _hints(read, index, config)]
    lines = [*remarks, *describe_tasks(read, config), *hints]
    proposal = proposed_split(len(read.rows), 0, config)
    if counts["mixture"] and not config.site_columns:
        proposal = replace(proposal, standardize=True)
    return TableCheck(sorted(problems), lines, proposal)


def _problems(table: TrainingTable) -> Iterator[Problem]:
    """Yield the problems of rows that are used."""

    def problem(row: int, name: str, reason: str) -> Problem:
        return Problem(table.rows[row].line, table.smiles[row], name, reason)

    groups = same_molecule(table.records)
    for low, high in conflicting_rows(table, groups):
        yield problem(high, "conflict", f"another label than {table.where(low)}")
    for first, *others in groups:
        for row in others:
            yield problem(row, "duplicate", f"the molecule of {table.where(first)}")
    for row, record in enumerate(table.records):
        smiles = record.smiles or ""
        if "." in smiles:
            yield problem(row, "mixture", f"{smiles.count('.') + 1} parts")
        if record.is_redrawn:
            yield problem(row, "drawing", f"read as {smiles}")
        elements = Chem.FindPotentialStereo(Chem.MolFromSmiles(smiles))
        if count := sum(element.specified == _UNSPECIFIED for element in elements):
            yield problem(row, "stereo", f"{counted(count, 'center or double bond')} unspecified")


def _hints(table: TrainingTable, index: int, config: DataConfig) -> Iterator[str]:
    """Yield what the labels of a target suggest."""
    task = table.tasks[index]
    labels = table.targets[:, index]
    labels = labels[~np.isnan(labels)]
    name = quoted(task.name)
    if task.kind != "regression":
        counts = np.bincount(labels.astype(int), minlength=len(task.classes))
        for label, count in zip(task.classes, counts, strict=True):
            if count < _RARE * len(labels):
                yield f"{name}: only {count} of {len(labels)} labels are {label}"
    elif labels.min() > 0.0 and np.log10(labels.max() / labels.min()) > _DECADES:
        decades = np.log10(labels.max() / labels.min())
        hint = "concentrations, such as an IC50 in nM, are better predicted as logarithms"
        transform = config.target_transform[index % len(config.target_transform)]
        advice = "--target-transform log" if transform == "none" else "train chooses a transform"
        yield f"{name}: spans {decades:.1f} orders of magnitude; {hint} ({advice})"
