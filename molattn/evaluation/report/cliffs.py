"""Cliffs of a report: test molecules that are similar and far apart."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from markupsafe import Markup
from numpy.typing import NDArray

from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.data.dataset import TrainingTable
from molattn.evaluation.report.molecules import molecule_image
from molattn.evaluation.report.plots import TaskResults
from molattn.evaluation.scores.metrics import above_zero
from molattn.model.difference import Side, differences, missing_interval
from molattn.task import output_slices
from molattn.training.run import TrainingRun

_MOST_ROWS = 2000  # whose similarities are compared
_MOST_CLIFFS = 50  # that are predicted
_SHOWN = 6
_ALIKE = 0.6
SEEN = ("yes", "within the interval, but not the sign", "no")
"""Whether a cliff was seen coming."""


class Cliff(NamedTuple):
    """A pair of test molecules, the one with the higher label first."""

    drawings: list[Markup]
    where: str  # the rows in the table
    similarity: str
    measured: str  # the difference, or the ratio
    predicted: str  # with its interval
    seen: str  # whether it was seen coming

    @classmethod
    def of(
        cls,
        table: TrainingTable,
        rows: NDArray[np.int64],
        is_ratio: bool,
        numbers: Sequence[float],
        seen: str,
    ) -> "Cliff":
        """Describe two rows of a table.

        The numbers are the similarity, the difference (or ratio) as measured and as predicted, and
        the ends of its interval.
        """
        where = [table.where(row) for row in rows.tolist()]
        drawings = [
            molecule_image(str(table.smiles[row]), f"Structure of the molecule in {line}")
            for row, line in zip(rows.tolist(), where, strict=True)
        ]
        sign = "" if is_ratio else "+"
        texts = [f"{value:{sign}.3g}" for value in numbers[1:]]
        unit = " times" if is_ratio else ""
        return cls(
            drawings,
            " and ".join(where),
            f"{numbers[0]:.2f}",
            f"{texts[0]}{unit}",
            f"{texts[1]}{unit}, {texts[2]} to {texts[3]}",
            seen,
        )


def find_cliffs(run: TrainingRun, tested: TaskResults) -> dict[str, Any]:
    """Return the cliffs of a regression: how many were seen coming, and the largest.

    A cliff is a pair of test molecules with a Tanimoto similarity of at least 0.6 whose labels are
    a standard deviation of the test labels apart, or more, on the transformed scale. It was seen
    coming if the interval of the predicted difference has the sign of the measured one. A label
    of 0 of a log target counts as half of the smallest above 0. The 50
    largest among the first 2,000 test rows are predicted. Empty for classes, models without
    intervals of differences, and models with a second molecule or feature columns.
    """
    model = run.model.config
    rows = run.split.test[tested.rows][:_MOST_ROWS]
    is_number = tested.task.kind == "regression" and not model.input_columns
    if not is_number or missing_interval(run.model.predictor) or len(rows) < 2:
        return {}
    task = model.tasks.index(tested.task)
    transform = model.target_transforms[task]
    labels = tested.target[:_MOST_ROWS]
    is_ratio = transform.kind == "log"
    labels = above_zero(labels, labels) if is_ratio else labels
    pairs, similarity = _similar_and_far_apart(
        run, rows, transform.forward(torch.from_numpy(labels)).numpy()
    )
    if not pairs.size:
        return {}
    level = run.config.report.interval
    first, second = (
        Side.of(run.model.predictor, run.table.molecules(rows[side]).records, level, 256)
        for side in pairs
    )
    predicted = differences(run.model.predictor, first, second, level)
    column = output_slices(model.tasks)[task].start
    higher, lower = labels[pairs]
    measured = higher / lower if is_ratio else higher - lower
    ends = predicted.low[:, task], predicted.high[:, task]
    is_inside = (ends[0] <= measured) & (measured <= ends[1])
    seen = np.select([ends[0] > is_ratio, is_inside], SEEN[:2], SEEN[2])
    numbers = zip(similarity, measured, predicted.difference[:, column], *ends, strict=True)
    cliffs = [
        Cliff.of(run.table, pair, is_ratio, values, str(word))
        for pair, values, word in zip(rows[pairs.T[:_SHOWN]], numbers, seen, strict=False)
    ]
    return {"cliffs": cliffs, "seen": Counter(seen.tolist()), "level": f"{level:.0%}"}


def _similar_and_far_apart(
    run: TrainingRun, rows: NDArray[np.int64], values: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the pairs of rows that are cliffs by their indices, ``[2, n]``, and similarities.

    Those that are furthest apart come first, and the one with the higher value of each.
    """
    prints = run.table.fingerprints(rows)
    similarity = FingerprintIndex(prints).similarities(prints)
    identities = np.array([run.table.records[row].identity for row in rows], dtype=np.uint64)
    apart = values[:, None] - values
    is_cliff = (similarity >= _ALIKE) & (apart >= values.std()) & (apart > 0.0)
    pairs = np.stack(np.nonzero(is_cliff & (identities[:, None] != identities)))
    order = np.argsort(-apart[*pairs], kind="stable")[:_MOST_CLIFFS]
    return pairs[:, order], similarity[*pairs[:, order]]
