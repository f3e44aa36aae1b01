"""Which molecules of a table to measure next, by the Gaussian process of a model."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from scipy.special import ndtr

from molattn.config import PlanConfig
from molattn.data.labels import is_missing
from molattn.data.table import Row, Table, free_name
from molattn.errors import InputError, quoted
from molattn.inference.predict import label_columns, predict_table, prediction_spec
from molattn.inference.streaming import map_table, molecule_batches, open_with_model
from molattn.model.columns import cell_text
from molattn.model.model import MolAttn
from molattn.model.predictor import ONE_SIGMA
from molattn.model.readable import target_name
from molattn.task import output_slices
from molattn.utils.console import counted, print_line, three_digits

Array = NDArray[np.float64]

MOST_CANDIDATES = 3000  # whose covariance is computed
_LEAST_STD = 1e-9
_LEAST_SHOWN = 0.05


def expected_improvement(mean: Array, std: Array, best: float) -> Array:
    r"""Return :math:`E[\max(y - b, 0)]` of normal y above the best b (Jones et al., 1998)."""
    z = (mean - best) / std
    return std * (z * ndtr(z) + np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi))


def probability_between(low: Array, high: Array) -> Array:
    """Return the probability that a standard normal number is between two, exact in both tails."""
    is_upper = low > 0.0
    below = np.where(is_upper, -high, low)
    above = np.where(is_upper, -low, high)
    return ndtr(above) - ndtr(below)


ACQUISITIONS: Mapping[str, Callable[[Array, Array, float], Array]] = {
    "upper_confidence_bound": lambda mean, std, best: mean + std,
    "expected_improvement": expected_improvement,
    "uncertainty": lambda mean, std, best: std,
    "greedy": lambda mean, std, best: mean,
}


class Candidates(NamedTuple):
    """The predictions of n molecules, larger values being better."""

    mean: Array  # predicted values, or probabilities to meet a goal, [n]
    covariance: Array  # of the values that are predicted, [n, n]
    noise: Array  # variance of the error of a measurement of each, [n]
    cost: Array  # of each measurement, [n]


class Choice(NamedTuple):
    """A molecule to measure: its index, and acquisition and standard deviation when chosen."""

    index: int
    acquisition: float
    std: float


def select_batch(
    candidates: Candidates, count: int, best: float, acquisition: str
) -> Iterator[Choice]:
    r"""Choose molecules one after another, each as if those before were measured.

    Each is the one with the highest acquisition over its cost. Then the covariance becomes
    :math:`\Sigma - \Sigma_i \Sigma_i^\top / (\Sigma_{ii} + \sigma_i^2)`, which lowers the variance
    of molecules like it, and its mean is the best value if it is higher than that.

    Source: Desautels et al., J. Mach. Learn. Res. 2014, 15, 4053 (hallucinated observations).
    """
    mean, covariance, noise, cost = candidates
    variance = covariance.diagonal().copy()
    is_left = np.ones(len(mean), dtype=bool)
    factors = np.zeros((min(count, len(mean)), len(mean)))
    for step in range(len(factors)):
        std = np.sqrt(np.maximum(variance, 1e-12 * covariance.diagonal()))
        scores = ACQUISITIONS[acquisition](mean, std, best) / cost
        index = int(np.argmax(np.where(is_left, scores, -np.inf)))
        yield Choice(index, float(scores[index]), float(std[index]))
        column = covariance[index] - factors[:step, index] @ factors[:step]
        factors[step] = column / np.sqrt(std[index] ** 2 + noise[index])
        variance -= factors[step] ** 2
        is_left[index] = False
        best = max(best, float(mean[index]))


def plan_table(
    model_folder: str | Path | MolAttn,
    source: str | Path | Table,
    output: str | Path,
    config: PlanConfig | None = None,
    console: Console | None = None,
) -> int:
    """Write the molecules of a table that are worth measuring next, best first.

    All molecules are predicted. The 3,000 different ones with the highest acquisition are compared
    with each other by the model's Gaussian process, whose variance is scaled to the calibrated
    intervals, and ``config.count`` of them are chosen by :func:`select_batch`. The output has their
    rows, with ``rank``, ``acquisition`` and ``reason``, and predictions as :func:`predict_table`
    writes them. With ``config.goal`` the acquisition is the probability that a measurement meets
    it, whatever is chosen before.
    Molecules of the training data, molecules with a value in the column of the target, repeated
    molecules and rows with an error are left out. A model
    that was saved without identities or noises, such as ``admet``, takes stereoisomers of training
    molecules for these, and the noise of a label for the error of its most certain predictions.

    Returns:
        The number of molecules chosen.

    Raises:
        InputError: The model has no Gaussian process or no intervals for the target, the target is
            no regression, or a cost is no number above 0.
    """
    config = config or PlanConfig()
    table, model = open_with_model(source, model_folder, config, console, output)
    target = _Target(model, table, config)
    costs = _costs(table, config.cost_column)
    numbers, predicted = target.best_rows(costs, console)
    new_cells = target.choose(numbers, predicted, costs[numbers - 1])
    rows = _Chosen(table, new_cells, ("rank", "acquisition", "reason"))
    predict_table(model, rows, output, config)  # the remarks on all rows are printed
    return len(new_cells)


class _Target:
    """A target of a model in a table of candidates.

    It is transformed, and its sign is changed where small values are better.
    """

    def __init__(self, model: MolAttn, table: Table, config: PlanConfig) -> None:
        model.check_predicts_molecules()
        tasks = model.config.tasks
        names = [task.name for task in model.config.tasks]
        if config.target is None and len(tasks) > 1:
            raise InputError(f"expected one of {', '.join(names)}", option="target")
        self.name = names[0]
        if config.target is not None:
            self.name = target_name(tasks, model.endpoints, config.target)
        self.index = names.index(self.name) if self.name in names else -1
        if self.index < 0 or tasks[self.index].kind != "regression":
            raise InputError(f"got {quoted(self.name)}, expected a regression", option="target")
        labels = model.training_set and model.training_set.labels
        process = model.gaussian_process
        if process is None or model.uncertainty is None or not labels:
            raise InputError("MODEL: expected a Gaussian process (--predictor both) and intervals")
        self.model = model
        self.table = table
        self.config = config
        self.process = process
        self.sign = -1.0 if config.minimize else 1.0
        self.labels = labels[self.index]
        self.measured = self.labels.quantiles[0 if config.minimize else -1]
        self.best = float(self._scaled(np.array([self.measured]))[0])
        self.goal = config.goal_range()
        self.acquisition = config.acquisition if self.goal is None else "greedy"

    def _merit(self, mean: Array, std: Array) -> Array:
        """Return what is acquired: the mean, or how likely a measurement meets the goal."""
        if self.goal is None:
            return mean
        low, high = (
            (self._scaled(np.array([end])) if np.isfinite(end) else end) for end in self.goal
        )
        return probability_between((low - mean) / std, (high - mean) / std)

    def _preference(self, mean: Array) -> Array:
        """Return what orders rows of equal acquisition, by their expected values."""
        low, high = self.goal or (-np.inf, np.inf)
        if np.isfinite([low, high]).all():
            return -np.abs(mean - self._scaled(np.array([low, high])).mean())
        return mean if np.isinf(high) else -mean

    def _goal_remark(self, merit: Array) -> str:
        """Say that a goal is beyond what was measured, or does not tell candidates apart."""
        low, high = self.goal or (np.nan, np.nan)
        least, *_, most = self.labels.quantiles
        remarks = [
            (low >= most or high <= least, "no measured label meets it: probabilities extrapolate"),
            (low < least and high > most, "all measured labels meet it"),
            (
                self.goal and np.ptp(merit.round(2)) == 0.0,
                "all candidates have the same probability to meet it",
            ),
        ]
        remark = next((text for applies, text in remarks if applies), "")
        limits = zip("<>", (self.labels.below, self.labels.above), strict=True)
        censored = [f"{sign}{three_digits(end)}" for sign, end in limits if end is not None]
        labels = ", ".join([f"{three_digits(least)} to {three_digits(most)}", *censored])
        return remark and f"--goal {self.config.goal.strip()}: {remark} (labels: {labels})"

    def _scaled(self, values: Array) -> Array:
        transform = self.model.config.target_transforms[self.index]
        return self.sign * transform.forward(torch.tensor(values)).numpy()

    def best_rows(self, costs: Array, console: Console | None) -> tuple[NDArray[np.int64], Array]:
        """Predict all rows; return the numbers of n candidates by acquisition over cost.

        Also mean and standard deviation of each, those of a measurement, ``[2, n]``.
        """
        import pandas as pd  # slow to import

        spec = replace(prediction_spec(self.model, ONE_SIGMA), keeps_columns=False)
        with TemporaryDirectory() as folder:
            file = Path(folder, "predictions.parquet")
            map_table(self.table, self.model, file, spec, self.config, console)
            predictions = pd.read_parquet(file)
        similarity = predictions["training_similarity"]
        similarity = predictions.get(f"{self.name}_training_similarity", similarity)
        is_training = similarity >= 1.0
        if len(self.process.learned):  # stereoisomers are as similar, and may be new
            rows = self.read(1 + predictions.index[is_training])
            identities = [row.record.identity for row in rows]
            is_training[is_training] = np.isin(identities, self.process.learned)
        print_line(console, f"{counted(is_training.sum(), 'row')} of training molecules left out")
        if more := (self.is_measured & ~is_training).sum():
            print_line(
                console, f"{counted(more, 'row')} with a value in {quoted(self.name)} left out"
            )
        is_training |= self.is_measured
        columns = [f"{self.name}_{end}" for end in ("low", "predicted", "high")]
        predictions = predictions[~is_training].dropna(subset=columns)
        if not len(predictions):
            raise self._no_candidates()
        low, mean, high = (self._scaled(predictions[column].to_numpy()) for column in columns)
        std = np.maximum(np.abs(high - low) / 2.0, _LEAST_STD)
        numbers = predictions.index.to_numpy() + 1
        merit = self._merit(mean, std)
        scores = ACQUISITIONS[self.acquisition](merit, std, self.best) / costs[numbers - 1]
        if remark := self._goal_remark(merit):
            print_line(console, remark)
        order = np.lexsort((-self._preference(mean), -scores))
        return numbers[order], np.stack([mean, std])[:, order]

    def _no_candidates(self) -> InputError:
        message = f"no new molecule has a prediction of {quoted(self.name)} with an interval"
        return InputError(f"{self.table.path}: {message}")

    @cached_property
    def is_measured(self) -> NDArray[np.bool_]:
        """Which rows have a measured value of the target."""
        column = label_columns(self.model, self.table)[self.index]
        cells = ("" if column is None else row.cells[column] for row in self.table)
        return np.array([not is_missing(cell) for cell in cells], dtype=bool)

    def read(self, numbers: Iterable[int]) -> list[Any]:
        """Read rows with valid molecules as they are predicted, by their numbers, in that order."""
        fields = replace(self.model.config.input_fields(), smiles=True)
        selected = _Chosen(self.table, dict.fromkeys(numbers, ()))
        rows: Iterable[Any] = chain.from_iterable(
            molecule_batches(selected, self.model, self.config, fields)
        )
        if self.name in self.model.config.written_tasks:
            return [
                row._replace(record=row.record and (row.record.written or row.record))
                for row in rows
            ]
        return [*rows]

    def distinct(self, numbers: NDArray[np.int64]) -> dict[int, Any]:
        """Read the first 3,000 molecules without a measured value, each once.

        Returns:
            From the position of a row in ``numbers`` to the row.
        """
        read = self.read((1 + np.flatnonzero(self.is_measured)).tolist())
        measured = {row.record.identity for row in read if row.record}
        most = max(MOST_CANDIDATES, self.config.count)
        molecules = dict[Any, tuple[int, Any]]()
        for start in range(0, len(numbers), most):
            rows = self.read(numbers[start : start + most].tolist())
            for position, row in enumerate(rows, start):
                if row.record.identity not in measured:
                    molecules.setdefault((row.record.identity, *row.features), (position, row))
            if len(molecules) >= most:
                break
        return dict([*molecules.values()][:most])

    def choose(
        self, numbers: NDArray[np.int64], predicted: Array, costs: Array
    ) -> dict[int, tuple[float | str, ...]]:
        """Choose among rows; return the new cells of each by its number, in order."""
        config = self.config
        model = self.model
        rows = self.distinct(numbers)
        if not rows:
            raise self._no_candidates()
        indices = [*rows]
        records = [row.record for row in rows.values()]
        features = [row.features for row in rows.values()] if model.config.features else None
        _, inputs = model.networks.predict(records, config.batch_size, features=features)
        output = output_slices(model.config.tasks)[self.index].start
        error = model.predictor.least_std(self.index)
        covariance, noise = self.process.posterior(inputs, output, error)
        mean, std = predicted[:, indices]
        variance = std**2 / (covariance.diagonal() + noise)  # of the signal, by the intervals
        scaled = covariance * np.sqrt(np.outer(variance, variance))
        merit = self._merit(mean, std)
        candidates = Candidates(merit, scaled, variance * noise, costs[indices])
        batch = select_batch(candidates, config.count, self.best, self.acquisition)
        return {
            int(numbers[indices[choice.index]]): (
                rank,
                choice.acquisition,
                self._reason(choice, candidates),
            )
            for rank, choice in enumerate(batch, start=1)
        }

    def _reason(self, choice: Choice, candidates: Candidates) -> str:
        std = float(np.sqrt(candidates.covariance[choice.index, choice.index]))
        merit = candidates.mean[choice.index]
        if self.goal is None:
            probability = ndtr((merit - self.best) / std)
            side = "below" if self.config.minimize else "above"
            goal = f"{side} {self.measured:.3g}, the best of training"
        else:
            probability = merit
            words = self.config.goal_words
            goal = " ".join(["from"] * ("to" in words) + words)
        rounded = ">99%" if 0.995 <= probability < 1.0 else f"{probability:.0%}"
        likely = "<1%" if probability < 0.01 else rounded
        lessened = 1.0 - choice.std / std
        more = f"; measuring those ranked before it would lessen its uncertainty by {lessened:.0%}"
        return f"{likely} likely to be {goal}" + more * (lessened >= _LEAST_SHOWN)


class _Chosen(Table):
    """Some rows of a table by number, in order, with columns added."""

    def __init__(
        self,
        table: Table,
        cells: Mapping[int, tuple[float | str, ...]],
        columns: tuple[str, ...] = (),
    ) -> None:
        self._table = table
        self._cells = cells
        self.path = table.path
        self.unit = table.unit
        self.header = list(table.header)
        for name in columns:
            self.header.append(free_name(name, self.header))

    def __iter__(self) -> Iterator[Row]:
        """Read the rows."""
        rows = {n: row for n, row in enumerate(self._table, start=1) if n in self._cells}
        for index, cells in self._cells.items():
            texts = [*rows[index].cells, *map(cell_text, cells)]
            yield rows[index]._replace(cells=texts, values=None)


def _costs(table: Table, name: str | None) -> Array:
    """Return the cost of each row, 1 by default."""
    import pandas as pd  # slow to import

    column = None if name is None else table.column(name, "--cost-column")
    cells = ["1" if column is None else row.numeral(column) for row in table]
    costs = pd.to_numeric(pd.Series(cells), errors="coerce").to_numpy(dtype=np.float64)
    for row in np.flatnonzero(~(costs > 0.0) | np.isinf(costs)).tolist()[:1]:
        message = f"got {quoted(cells[row])}, expected a number above 0"
        where = f"{table.path}, {table.where(next(islice(table, row, None)).line)}"
        raise InputError(f"{where}: {message}", option="cost_column")
    return costs
