"""Tables of results: what each model reaches, and one model beside the others, seed by seed."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from molattn.errors import InputError, quoted
from scripts.benchmarks.benchmarking import markdown_table

from .development import SCORES, main_scores
from .results import Result


class Summary(NamedTuple):
    """Values over seeds: their mean, standard deviation (n - 1; None for one alone) and number."""

    mean: float
    sd: float | None
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Summary":
        """Summarize some values, one at least."""
        values = list(values)
        sd = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values), sd, len(values))


class Cell(NamedTuple):
    """A model on a case: its values and seconds of the processor by seed."""

    model: str
    kind: str
    values: dict[int, float]
    seconds: dict[int, float]


class Comparison(NamedTuple):
    """The reference minus another model over the seeds that both have.

    ``mean`` is the other's, ``better`` counts the seeds in which the reference is better, and
    ``gain`` is by how much its own mean is better; negative where it is worse.
    """

    model: str
    mean: float
    difference: Summary
    better: int
    gain: float

    @property
    def ahead(self) -> float | None:
        """``gain`` in percent of the size of the other's mean; None where that is 0."""
        return 100.0 * self.gain / abs(self.mean) if self.mean else None


class CaseTable(NamedTuple):
    """All models on one dataset in one kind of split, by one score."""

    data: str
    split: str
    metric: str
    cells: list[Cell]

    @property
    def heading(self) -> str:
        """What tables call the score."""
        return SCORES[self.metric].heading or self.metric

    @property
    def sign(self) -> float:
        """1 where a higher score is better, -1 where a lower one is."""
        return 1.0 if SCORES[self.metric].higher_is_better else -1.0

    @property
    def seeds(self) -> set[int]:
        """All seeds that any model has."""
        return {seed for cell in self.cells for seed in cell.values}

    def compare(self, reference: str, others: Iterable[Cell] | None = None) -> list[Comparison]:
        """Compare a model with others, of which those without a seed in common are left out."""
        own = next((cell for cell in self.cells if cell.model == reference), None)
        found = []
        for cell in self.cells if others is None else others:
            seeds = sorted(set(cell.values) & set(own.values)) if own else []
            if own is None or cell is own or not seeds:
                continue
            differences = [own.values[seed] - cell.values[seed] for seed in seeds]
            difference = Summary.of(differences)
            mean = statistics.fmean(cell.values[seed] for seed in seeds)
            better = sum(self.sign * value > 0 for value in differences)
            gain = self.sign * difference.mean
            found.append(Comparison(cell.model, mean, difference, better, gain))
        return found

    def best_peer(self, reference: str) -> Comparison | None:
        """Compare a model with the best one of another kind, by its mean."""
        kinds = {cell.model: cell.kind for cell in self.cells}
        peers = [cell for cell in self.cells if cell.kind != kinds.get(reference)]
        found = self.compare(reference, peers)
        return max(found, key=lambda one: self.sign * one.mean, default=None)


def case_tables(results: Sequence[Result], metrics: Sequence[str] | None = None) -> list[CaseTable]:
    """Arrange results, which are of one part, by case; cases and models sorted by name.

    Without ``metrics``, the main scores of each dataset.
    """
    cells: dict[tuple[str, str, str], dict[str, Cell]] = {}
    for result in results:
        if result.metric in (metrics or main_scores(result.data)):
            models = cells.setdefault((result.data, result.split, result.metric), {})
            cell = models.setdefault(result.model, Cell(result.model, result.kind, {}, {}))
            cell.values[result.seed] = result.value
            cell.seconds[result.seed] = result.cpu_seconds
    return [
        CaseTable(*key, [models[name] for name in sorted(models)])
        for key, models in sorted(cells.items())
    ]


def scores_text(tables: Sequence[CaseTable]) -> str:
    """Return what each model reaches as a Markdown table."""
    rows = []
    for table in tables:
        best = _best(table)
        for cell in table.cells:
            score = _score(table, cell)
            seconds = statistics.fmean(cell.seconds.values())
            rows.append(
                [
                    *(f"{table.data}, {table.split}", table.heading),
                    *(cell.model, f"**{score}**" if cell is best else score, f"{seconds:.0f}"),
                ]
            )
    return markdown_table(["case", "score", "model", "mean ± sd", "CPU, s"], rows)


def differences_text(tables: Sequence[CaseTable], reference: str) -> str:
    """Return the paired differences of a model from every other as a Markdown table."""
    rows = [
        [
            *(f"{table.data}, {table.split}", table.heading, other.model),
            *(_signed(other.difference), f"{other.better} of {other.difference.count}"),
        ]
        for table in tables
        for other in table.compare(reference)
    ]
    header = ["case", "score", "model", f"{reference} - model", f"{reference} better"]
    return markdown_table(header, rows)


def verdicts_text(tables: Sequence[CaseTable], reference: str) -> str:
    """Return whether a model is ahead of the best model of another kind as a Markdown table."""
    rows = []
    for table in tables:
        peer = table.best_peer(reference)
        case = [f"{table.data}, {table.split}", table.heading]
        if peer is None:
            rows.append([*case, "none", "-", "-", "-"])
            continue
        ahead = "yes" if peer.gain > 0 else "no"
        by = "-" if peer.ahead is None else f"{peer.ahead:+.1f} %"
        rows.append([*case, peer.model, ahead, by, f"{peer.better} of {peer.difference.count}"])
    header = ["case", "score", "best other", f"{reference} ahead", "by", "better seeds"]
    return markdown_table(header, rows)


def report(
    results: Sequence[Result], reference: str | None, metrics: Sequence[str] | None = None
) -> str:
    """Return all tables of results, which are of one part, with the versions behind them.

    Raises:
        InputError: There is no such result, or none of the reference.
    """
    tables = case_tables(results, metrics)
    if not tables:
        names = " or ".join(metrics or ["a main score"])
        raise InputError(f"no result with {names} is among those asked for")
    texts = [scores_text(tables)]
    if reference is not None:
        known = {cell.model for table in tables for cell in table.cells}
        if reference not in known:
            raise InputError(
                f"--reference: got {quoted(reference)}, expected one of {', '.join(sorted(known))}"
            )
        texts += [differences_text(tables, reference), verdicts_text(tables, reference)]
    return "\n\n".join([*texts, _versions(results)])


def _versions(results: Iterable[Result]) -> str:
    versions: dict[str, set[str]] = {}
    for result in results:
        versions.setdefault(result.model, set()).add(result.version)
    return "Versions: " + "; ".join(
        f"{model}: {', '.join(sorted(names))}" for model, names in versions.items()
    )


def _best(table: CaseTable) -> Cell:
    """The best mean, whatever seeds are behind it."""
    return max(table.cells, key=lambda cell: table.sign * statistics.fmean(cell.values.values()))


def _score(table: CaseTable, cell: Cell) -> str:
    summary = Summary.of(cell.values.values())
    text = f"{summary.mean:.3f}" + ("" if summary.sd is None else f" ± {summary.sd:.3f}")
    return text + (f" (n={summary.count})" if summary.count < len(table.seeds) else "")


def _signed(summary: Summary) -> str:
    return f"{summary.mean:+.3f}" + ("" if summary.sd is None else f" ± {summary.sd:.3f}")


def select(results: Iterable[Result], chosen: Mapping[str, Sequence[object]]) -> list[Result]:
    """Return the results whose columns have one of the values chosen; no value, any will do."""
    return [
        result
        for result in results
        if all(not values or getattr(result, name) in values for name, values in chosen.items())
    ]
