"""Runs compared on the same test rows: scores, paired differences and a test of these."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from molattn.chem.groups import scaffold_smiles
from molattn.chem.parse import parse_molecule
from molattn.config import TrainConfig
from molattn.config.yaml_file import read_config_file
from molattn.data.labels import label_values
from molattn.data.table import escape_formula, listed, name_column, open_table
from molattn.data.table.base import valid_text
from molattn.errors import InputError, matching
from molattn.evaluation.scores.metrics import (
    METRICS,
    main_metric,
    metrics_of,
    percentile_interval,
    replaced_lines,
    resamplings,
    sample_scores,
    scaled_rows,
    scored_kind,
)
from molattn.evaluation.scores.run_metrics import RunMetrics, read_metrics
from molattn.task import Task, output_slices
from molattn.training.run_folder import CONFIG_FILE, RESULT_FILE

Array = NDArray[np.float64]
_Row = dict[str, Any]

_COLUMNS = "task rows count metric run minus value low high p_value degrees_of_freedom".split()
_SAMPLES = 1000  # of the bootstrap
_MOST_SCAFFOLDS = 8  # that are shown by themselves
_FEWEST_ROWS = 5  # of such a scaffold
_ERRORS = {"regression": "mae", "binary": "brier", "multiclass": "brier"}  # means over molecules


class RunPredictions(NamedTuple):
    """The test rows of a run.

    ``frame`` has the columns ``label`` of each task, NaN if missing or censored, the bounds ``low``
    and ``high`` of censored labels, ``output`` by output name, ``similarity`` to the training
    molecules and ``name``, if known. Its sorted index is what the rows of other runs must equal:
    round ("" of a single split), SMILES, second SMILES and labels. The targets ``logarithms`` are
    scored on log10.
    """

    folder: Path
    config: TrainConfig
    tasks: list[Task]
    frame: pd.DataFrame
    logarithms: frozenset[str]

    @property
    def rounds(self) -> list[str]:
        """Rounds of a cross-validation; the empty text of a single split."""
        return sorted(self.frame.index.unique(0))

    def arrays(self, rows: Any = slice(None)) -> dict[str, Any]:
        """Return outputs, labels and bounds of some rows, by the arguments of a score."""
        frame = self.frame.loc[rows]
        bounds = np.stack([frame[end].to_numpy() for end in ("low", "high")])
        arrays = {"prediction": frame["output"].to_numpy(), "target": frame["label"].to_numpy()}
        return {**arrays, "bounds": bounds, "logarithms": self.logarithms}

    def replaced_lines(self) -> list[str]:
        """Return how many predictions have no logarithm, a line for each target with some."""
        return replaced_lines(**self.arrays(), tasks=self.tasks, model=str(self.folder))


def _read(folder: Path) -> RunPredictions:
    """Read the test predictions of a finished run or cross-validation."""
    for name in (CONFIG_FILE, RESULT_FILE, "predictions.csv"):
        if not (folder / name).is_file():
            raise InputError(f"{folder}: expected a finished run of molattn train, got no {name}")
    config = TrainConfig(**read_config_file(folder / CONFIG_FILE))
    metrics = read_metrics(folder).runs
    tasks = _molecule_tasks(metrics[0])
    if not tasks:
        raise InputError(f"{folder}: expected a run that predicts molecules, got one of atoms")
    data = config.data
    table = open_table(folder / "predictions.csv")
    header = [_unescaped(name) for name in table.header]
    rows = [[_unescaped(cell) for cell in row.cells] for row in table]
    if not rows:
        raise InputError(f"{folder}: expected a run with test rows, got none")
    # Added columns come after those of the table, see free_name.
    added = {name.rstrip("_"): index for index, name in enumerate(header)}

    def texts(column: str | int | None) -> list[str]:
        if isinstance(column, str):
            column = header.index(matching(column, header)[0])
        return [valid_text(row[column]) if column is not None else "" for row in rows]

    def numbers(names: Sequence[str]) -> pd.DataFrame:
        column_texts = [texts(added.get(name.rstrip("_"))) for name in names]
        columns = [pd.to_numeric(cells, errors="coerce") for cells in column_texts]
        return pd.DataFrame(dict(zip(names, columns, strict=True)))

    none = [None] * len(tasks)
    relations = [texts(name) for name in data.relation_columns[: len(tasks)]] or none
    ends = [texts(name) for name in data.interval_columns]
    pairs = [[*zip(*pair, strict=True)] for pair in zip(ends[::2], ends[1::2], strict=True)] or none
    read = {
        task.name: label_values(texts(task.name), task, signs, intervals=limits)
        for task, signs, limits in zip(tasks, relations, pairs, strict=True)
    }
    labels = {name: values for name, (values, _) in read.items()}
    parts = {"label": pd.DataFrame(labels), "similarity": numbers(["training_similarity"])}
    for row, end in enumerate(("low", "high")):
        parts[end] = pd.DataFrame({name: bounds[row] for name, (_, bounds) in read.items()})
    parts["output"] = numbers([name for task in tasks for name in task.output_names])
    is_folded = data.folds is not None and data.only_fold is None
    keys = [texts(added["round"] if is_folded else None)]
    parts["name"] = pd.DataFrame({"name": texts(name_column(header))})
    smiles = table.column(data.smiles_column, "smiles_column")
    keys += [texts(smiles), texts(data.partner_column)]
    keys += [[f"{value:.7g}" for value in column] for column in labels.values()]
    frame = pd.concat(parts, axis=1).set_index(pd.MultiIndex.from_arrays(keys))
    logarithms = frozenset(name for run in metrics for name in run.logarithms)
    return RunPredictions(folder, config, tasks, frame.sort_index(kind="stable"), logarithms)


def _molecule_tasks(metrics: RunMetrics) -> list[Task]:
    """Return the tasks of molecules, without those of atoms and bonds."""
    tested = metrics.scores.get("test")
    scored = {} if tested is None else tested.tasks
    by_molecule = {"molecule_mae", "molecule_accuracy"}  # scores of atoms and bonds alone
    return [task for task in metrics.tasks if by_molecule.isdisjoint(scored.get(task.name, {}))]


def _unescaped(text: str) -> str:
    return text[1:] if escape_formula(text[1:]) == text else text


def _check_same_rows(first: RunPredictions, other: RunPredictions) -> None:
    expected, got = (
        "; ".join(listed([task.name, task.kind, *task.classes]) for task in run.tasks)
        for run in (first, other)
    )
    if expected != got:
        what = f"the targets of {first.folder}, {expected}"
    elif not first.frame.index.equals(other.frame.index):
        rows = len(other.frame)
        same = other.frame.index.isin(first.frame.index).sum()
        what = f"the test rows of {first.folder} ({len(first.frame):,} molecules)"
        got = f"{rows:,}, {same:,} of them the same; --split, --seed and --folds choose them"
    else:
        return
    raise InputError(f"{other.folder}: expected {what}, got {got}")


def compare(runs: Sequence[str | Path]) -> pd.DataFrame:
    """Compare runs on the same test rows, as ``molattn compare`` does.

    A difference is paired. Its interval and p value are of Tukey's HSD: they hold for all pairs of
    the k runs together (family-wise error 5%). Its standard error is

    - of **cross-validations** that of repeated measures: the mean square of what runs and the R
      rounds do not explain, with (k - 1)(R - 1) degrees of freedom, times 2 (1/R + 1/(folds - 1)).
      The second term is for training sets that overlap (Nadeau and Bengio); without it, intervals
      vanish with more repeats. Methods are compared, trained on so many rows.
    - of **single splits** that of a bootstrap that draws whole scaffolds, the same for all runs, as
      errors within a series are alike, and molecules without rings one by one. There are
      (Σ m)² / Σ m² - 1 degrees of freedom, of m rows in a scaffold. The trained models are
      compared, on molecules such as these; another seed would train others.

    Args:
        runs: Folders of two or more finished runs with the same targets and test rows.

    Returns:
        A row for each score and difference: ``task``; ``rows`` (``all``, of a large scaffold, or a
        fifth by similarity to the training molecules of the first run); ``count`` of labels;
        ``metric``, also on log10 if a run learned the logarithm; ``run``; ``minus``, the run that
        is subtracted, empty for a score; ``value``, its 95% interval ``low`` and ``high``, and
        ``p_value`` and ``degrees_of_freedom`` of a difference. Rows without a finite prediction of
        each run are left out.

    Raises:
        InputError: A folder is no finished run, or its targets or test rows differ.

    Sources: Ash et al., Practically Significant Method Comparison Protocols for Machine Learning in
    Small Molecule Drug Discovery, J. Chem. Inf. Model. 2025; Nadeau and Bengio, Inference for the
    Generalization Error, Machine Learning 2003, 52, 239.
    """
    return comparison_table(read_runs(runs))


def read_runs(folders: Sequence[str | Path]) -> dict[str, RunPredictions]:
    """Return runs by name, with the rows of which each has a finite prediction.

    All are scored on log10 for the targets that any of them learned as logarithms.
    """
    paths = [Path(folder) for folder in folders]
    if len({path.resolve() for path in paths}) < max(2, len(paths)):
        raise InputError(f"RUN: got {listed([*map(str, paths)])}, expected two or more runs")
    first, *others = runs = [_read(path) for path in paths]
    for other in others:
        _check_same_rows(first, other)
    finite = np.all([np.isfinite(run.frame["output"]).all(axis=1) for run in runs], axis=0)
    names = [path.resolve().name for path in paths]
    names = names if len({*names}) == len(names) else [*map(str, paths)]
    logs = frozenset[str]().union(*(run.logarithms for run in runs))
    finite_runs = [run._replace(frame=run.frame[finite], logarithms=logs) for run in runs]
    return dict(zip(names, finite_runs, strict=True))


def comparison_table(runs: Mapping[str, RunPredictions]) -> pd.DataFrame:
    """Return the table of :func:`compare`."""
    first, *_ = runs.values()
    smiles = first.frame.index.get_level_values(1)
    scaffold_of = {text: scaffold_smiles(parse_molecule(text)) for text in smiles.unique()}
    scaffolds = np.array([scaffold_of[text] for text in smiles], dtype=object)
    rows = [*_estimated_rows(runs, scaffolds), *_subset_rows(runs, scaffolds)]
    return pd.DataFrame(rows, columns=_COLUMNS)


def _estimated_rows(runs: Mapping[str, RunPredictions], scaffolds: Any) -> Iterator[_Row]:
    """Yield scores and differences of the metrics that tables show, of all rows."""
    first, *_ = runs.values()
    tasks = first.tasks
    folds = first.config.data.folds or 2
    smiles = first.frame.index.get_level_values(1)
    units = np.where(scaffolds != "", scaffolds, smiles).astype(str)
    groups = np.unique(units, return_inverse=True)[1]
    resamples = _SAMPLES if first.rounds == [""] else 0
    drawn = [
        sample_scores(
            **run.arrays([name]),
            tasks=tasks,
            samples=resamplings(len(groups), resamples, groups=groups),
        )
        for run in runs.values()
        for name in first.rounds
    ]
    intervals = metrics_of("interval", "log10_interval")
    for task in tasks:
        labeled = first.frame["label", task.name].notna().to_numpy()
        ends = first.frame[[("low", task.name), ("high", task.name)]]
        is_censored = ends.notna().any(axis=1).to_numpy() & ~labeled
        for name in _metric_names(task, drawn):
            rows = is_censored if "censored" in name else labeled
            rows = is_censored | labeled if name in intervals else rows
            undefined = np.full(1, np.nan)  # of a round without such rows
            values = [scores[task.name].get(name, undefined) for scores in drawn]
            values = np.array(values).reshape(len(runs), -1)
            sizes = np.bincount(groups[rows])
            estimate = _of_samples(values, sizes) if resamples else _of_rounds(values, folds)
            facts = {"task": task.name, "rows": "all", "count": rows.sum(), "metric": name}
            yield from ({**facts, **row} for row in _rows([*runs], *estimate))


def _metric_names(task: Task, drawn: Sequence[Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Return the metrics of a task that have a heading, its main metric first."""
    names = {name for scores in drawn for name in scores[task.name]}
    first, _ = main_metric(scored_kind(task, drawn[0][task.name]))
    headed = (name for name, metric in METRICS.items() if metric.heading and name in names)
    return [first, *(name for name in headed if name != first)]


_Estimate = tuple[Array, Array, Array, float]
"""Scores of k runs, their bounds ``[2, k]``, standard errors of differences, and degrees."""


def _of_rounds(values: Array, folds: int) -> _Estimate:
    """Estimate a score from its values in R rounds ``[k, R]``, NaN where it is undefined."""
    values = values[:, ~np.isnan(values).any(axis=0)]
    k, rounds = values.shape
    if rounds < 2:
        return np.full(k, np.nan), np.full((2, k), np.nan), np.full((k, k), np.nan), 1
    mean = values.mean(axis=1)
    degrees = (k - 1) * (rounds - 1)
    variance = 1.0 / rounds + 1.0 / (folds - 1)  # of a mean, in those of a value
    residual = values - mean[:, None] - values.mean(axis=0) + values.mean()
    error = np.sqrt(2.0 * variance * (residual**2).sum() / degrees)
    half = stdtrit(rounds - 1, 0.975) * np.sqrt(variance) * values.std(axis=1, ddof=1)
    return mean, np.stack([mean - half, mean + half]), np.full((k, k), error), degrees


def _of_samples(values: Array, sizes: NDArray[np.intp]) -> _Estimate:
    """Estimate a score from those of bootstrap samples ``[k, 1 + B]`` of groups of some sizes."""
    bounds = np.array([percentile_interval(scores[1:]) or [np.nan, np.nan] for scores in values])
    drawn = values[:, 1:][:, ~np.isnan(values[:, 1:]).any(axis=0)]
    errors = np.full((len(values), len(values)), np.nan)
    if 2 * drawn.shape[1] >= values.shape[1] > 2:
        errors = (drawn[:, None] - drawn).std(axis=2, ddof=1)
    degrees = max(1.0, sizes.sum() ** 2 / max(1, (sizes**2).sum()) - 1.0)
    return values[:, 0], bounds.T, errors, degrees


def tukey_hsd(
    differences: ArrayLike, errors: ArrayLike, runs: int, degrees: float
) -> tuple[Array, Array]:
    """Return half widths of the simultaneous 95% intervals of differences, and their p values.

    With the studentized range q of k ``runs`` and ν ``degrees`` of freedom, a difference d and its
    standard error s, they are q₀.₉₅ s / √2 and P(q > √2 |d| / s). For two runs it is the t-test.
    """
    d = np.abs(np.asarray(differences, dtype=float))
    s = np.asarray(errors, dtype=float)
    ratio = np.divide(np.sqrt(2.0) * d, s, out=np.where(d > 0.0, np.inf, 0.0), where=s != 0.0)
    if runs == 2:
        return stdtrit(degrees, 0.975) * s, 2.0 * stdtr(degrees, -ratio / np.sqrt(2.0))
    from scipy.stats import studentized_range  # slow to import, and to compute

    half = studentized_range.ppf(0.95, runs, degrees) * s / np.sqrt(2.0)
    return half, studentized_range.sf(ratio, runs, degrees)


def _rows(
    names: Sequence[str], scores: Array, bounds: Array, errors: Array, degrees: float
) -> Iterator[_Row]:
    """Yield the score of each run, and the difference of every two."""
    for run, value, low, high in zip(names, scores, *bounds, strict=True):
        yield {"run": run, "minus": "", "value": value, "low": low, "high": high}
    pairs = np.array([*combinations(range(len(names)), 2)]).T
    d = scores[pairs[0]] - scores[pairs[1]]
    half, p_values = tukey_hsd(d, errors[pairs[0], pairs[1]], len(names), degrees)
    for i, j, *values in zip(*pairs, d, d - half, d + half, p_values, strict=True):
        difference = dict(zip(("value", "low", "high", "p_value"), values, strict=True))
        yield {"run": names[i], "minus": names[j], **difference, "degrees_of_freedom": degrees}


def _subset_rows(runs: Mapping[str, RunPredictions], scaffolds: Any) -> Iterator[_Row]:
    """Yield the mean error of each run on the largest scaffolds, and on fifths by similarity."""
    first, *_ = runs.values()
    similarity = first.frame["similarity", "training_similarity"].to_numpy()
    slices = output_slices(first.tasks)
    for index, (task, part) in enumerate(zip(first.tasks, slices, strict=True)):
        labels = first.frame["label", task.name].to_numpy()
        is_log = task.name in first.logarithms
        metric = "log10_mae" if is_log else _ERRORS[task.kind]
        is_labeled = ~np.isnan(labels)
        masks = dict[str, Any]()
        counts = Counter(scaffolds[is_labeled]).most_common(_MOST_SCAFFOLDS)
        large = [scaffold for scaffold, count in counts if count >= _FEWEST_ROWS]
        for scaffold in large:
            masks[f"scaffold: {scaffold or 'none'}"] = is_labeled & (scaffolds == scaffold)
        masks["scaffold: others"] = is_labeled & ~np.isin(scaffolds, large)
        has_similarity = is_labeled & (similarity >= 0)
        order = np.argsort(np.where(has_similarity, similarity, np.nan))[: has_similarity.sum()]
        for rows in filter(len, np.array_split(order, 5)):
            low, high = similarity[rows[[0, -1]]]
            name = f"similarity: {low:.2f} to {high:.2f}"  # of two fifths if all are equal
            masks[name] = np.isin(np.arange(len(labels)), rows) | masks.get(name, False)
        masks = {name: mask for name, mask in masks.items() if mask.any()}
        weights = np.array([mask[is_labeled] for mask in masks.values()], dtype=float)
        weights = weights.reshape(len(masks), is_labeled.sum())  # without a label too
        output_columns = part if task.kind == "multiclass" else part.start
        for run, predictions in runs.items():
            arrays = predictions.arrays()
            outputs = arrays["prediction"][:, output_columns]
            limits = arrays["bounds"][:, :, index]
            scales = [*scaled_rows(task, outputs, labels, limits, is_log=is_log)]
            scaled = scales[is_log]  # the second scale is log10
            scores = METRICS[metric].function(scaled.target, scaled.prediction, weights)
            for (name, mask), score in zip(masks.items(), scores, strict=True):
                facts = {"task": task.name, "rows": name, "count": mask.sum(), "metric": metric}
                yield {**facts, "run": run, "minus": "", "value": score}
