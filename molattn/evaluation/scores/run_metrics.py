"""The content of ``metrics.json``, of a run and of a cross-validation."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, Self

from molattn.data.splitting import Leakage
from molattn.evaluation.scores.metrics import TaskScores, main_metric, scored_kind
from molattn.task import Task
from molattn.training.run_folder import RESULT_FILE
from molattn.utils.files import read_json, write_json

_OPTIONAL = ("confidence", "gaussian_process_weights", "auxiliary_sha256", "final")
"""Keys that the file lacks where the value is None."""
_LOG_TRANSFORM = "log transform"  # LogTransform.describe(), without loading torch


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Scores of a run, or of a cross-validation, whose scores have a mean and an sd.

    Args:
        scores: Scores of each model on the test rows, by its name in
            :data:`molattn.evaluation.report.tables.MODELS`, and of the ``validation`` rows.
        uncertainty: Scores of the prediction intervals by task, see
            :func:`molattn.evaluation.scores.scoring.score_uncertainty`.
        censored: By task the ``count`` of censored test labels, and how many predictions of the
            model are on the ``permitted`` side of the bound.
        confidence: Errors of each confidence by task, see
            :func:`molattn.evaluation.scores.scoring.score_confidence`; None in a cross-validation,
            and without test rows.
        seconds: Time of reading the table and of training.
    """

    scores: Mapping[str, TaskScores] = field(default_factory=dict)
    uncertainty: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    censored: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    confidence: Mapping[str, Mapping[str, Mapping[str, float]]] | None = None
    seconds: float = 0.0

    @property
    def runs(self) -> Sequence["RunMetrics"]:
        """The metrics of the run itself, or of each fold."""
        raise NotImplementedError

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Create an instance from the content of a file; keys without a field are ignored."""
        keys = [option.name for option in fields(cls) if option.name in content]
        values = {key: content[key] for key in keys}
        names = [name for name in content if f"{name}_mean" in content]
        values["scores"] = {
            name: TaskScores(content[name], content[f"{name}_mean"]) for name in names
        }
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the file."""
        content: dict[str, Any] = {
            name: value
            for name, value in vars(self).items()
            if value is not None or name not in _OPTIONAL
        }
        for name, scores in content.pop("scores").items():
            content[name] = scores.tasks
            content[f"{name}_mean"] = scores.mean
        return content

    def write(self, folder: Path) -> None:
        """Write ``metrics.json`` into the folder of a run."""
        write_json(folder / RESULT_FILE, self.to_dict())


@dataclass(frozen=True, kw_only=True)
class RunMetrics(Metrics):
    """Scores and facts of a run.

    Args:
        baseline_seconds: Time of training and prediction of each baseline.
        interval_level: Nominal coverage of the prediction intervals.
        gaussian_process_weights: Weight of the Gaussian process in the prediction of each task;
            None if it or the network predicts alone.
        tasks: The targets.
        target_transforms: Description of each transform of a target, by task.
        rows_in: Rows of the table, of which ``rows_used`` are used and ``rows_skipped`` are not.
        rows_skipped_by_code: Number of skipped rows by reason code.
        rows_standardized: Rows whose molecule was changed; None without ``--standardize``.
        rows_redrawn: Rows whose molecule is read in another drawing.
        rows_train: Training rows; ``rows_validation`` and ``rows_test`` likewise.
        rows_test_not_finite: Test rows without a finite prediction, which are not scored.
        labels_unreadable: Labels that cannot be read and count as missing.
        remarks: Remarks on the file of the table.
        leakage: Overlap of test and training molecules.
        members: Seed, epochs and time of each network, see
            :func:`molattn.evaluation.scores.scoring.member_facts`.
        seed: Random seed.
        threads: Number of CPU threads.
        init_from_sha256: SHA-256 of the model that training started from; None = random weights.
        data_sha256: SHA-256 of the table.
        auxiliary_sha256: SHA-256 of the table of auxiliary labels; None if there are none.
        versions: Versions of Python and of packages by name.
    """

    baseline_seconds: Mapping[str, float] = field(default_factory=dict)
    interval_level: float = 0.0
    gaussian_process_weights: Mapping[str, float] | None = None
    tasks: Sequence[Task] = ()
    target_transforms: Mapping[str, str] = field(default_factory=dict)
    rows_in: int = 0
    rows_used: int = 0
    rows_skipped: int = 0
    rows_skipped_by_code: Mapping[str, int] = field(default_factory=dict)
    rows_standardized: int | None = None
    rows_redrawn: int = 0
    rows_train: int = 0
    rows_validation: int = 0
    rows_test: int = 0
    rows_test_not_finite: int = 0
    labels_unreadable: int = 0
    remarks: Sequence[str] = ()
    leakage: Leakage = field(default_factory=Leakage)
    members: Sequence[Mapping[str, Any]] = ()
    seed: int = 0
    threads: int = 1
    init_from_sha256: str | None = None
    data_sha256: str = ""
    auxiliary_sha256: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def runs(self) -> Sequence["RunMetrics"]:
        """The metrics of this run."""
        return (self,)

    @property
    def logarithms(self) -> list[str]:
        """Names of the targets that are learned as logarithms."""
        return [name for name, text in self.target_transforms.items() if text == _LOG_TRANSFORM]

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Create an instance from the content of a file; keys without a field are ignored."""
        names = [name for name in content if f"{name}_seconds" in content]
        counts = content.get("leakage", {})
        keys = [count.name for count in fields(Leakage) if count.name in counts]
        return super().from_dict(
            {
                **content,
                "tasks": [Task(**task) for task in content["tasks"]],
                "leakage": Leakage(**{key: counts[key] for key in keys}),
                "baseline_seconds": {name: content[f"{name}_seconds"] for name in names},
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the file."""
        content = super().to_dict()
        content["tasks"] = [task.to_dict() for task in self.tasks]
        content["leakage"] = asdict(self.leakage)
        for name, seconds in content.pop("baseline_seconds").items():
            content[f"{name}_seconds"] = seconds
        return content


@dataclass(frozen=True, kw_only=True)
class FoldMetrics(RunMetrics):
    """Scores and facts of a round of a cross-validation.

    Args:
        folder: Name of its folder.
        repeat: Number of the repetition, from 1.
        fold: Number of the test fold, from 1.
    """

    folder: str = ""
    repeat: int = 1
    fold: int = 1


class FinalMetrics(NamedTuple):
    """Facts of the model of all rows that follows the folds.

    Args:
        rows_train: Training rows.
        members: As in :class:`RunMetrics`.
        interval_level: As in :class:`RunMetrics`.
        uncertainty: Coverage of the intervals by task, see
            :func:`molattn.training.out_of_fold.out_of_fold_coverage`.
        seconds: Time of the training.
    """

    rows_train: int
    members: Sequence[Mapping[str, Any]]
    interval_level: float
    uncertainty: Mapping[str, Mapping[str, float | int | None]]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CrossValidationMetrics(Metrics):
    """Scores of a cross-validation, the mean and sd over the folds.

    Args:
        folds: The metrics of each round.
        final: Facts of the model of all rows, if there is such a model.
    """

    folds: Sequence[FoldMetrics] = ()
    final: FinalMetrics | None = None

    @property
    def runs(self) -> Sequence[RunMetrics]:
        """The metrics of each fold."""
        return self.folds

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Create an instance from the content of a file; keys without a field are ignored."""
        folds = [FoldMetrics.from_dict(fold) for fold in content["folds"]]
        final = content.get("final")
        if final:
            final = FinalMetrics(**{name: final[name] for name in FinalMetrics._fields})
        return super().from_dict({**content, "folds": folds, "final": final})

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the file."""
        content = super().to_dict() | {"folds": [fold.to_dict() for fold in self.folds]}
        return content | ({"final": self.final._asdict()} if self.final else {})


def main_test_scores(folder: Path) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return the main test score of each task, of the ``network`` alone and the whole (``test``).

    Empty for a folder that is no run of a network with a Gaussian process and test rows.
    """
    if not (folder / RESULT_FILE).is_file():
        return {}
    metrics = read_metrics(folder)
    if isinstance(metrics, CrossValidationMetrics) or "network" not in metrics.scores:
        return {}
    test = metrics.scores["test"].tasks
    keys = {
        task.name: main_metric(scored_kind(task, test.get(task.name, {})))[0]
        for task in metrics.tasks
    }
    return {
        name: {task: {key: tasks[task].get(key)} for task, key in keys.items() if task in tasks}
        for name in ("network", "test")
        for tasks in [metrics.scores[name].tasks]
    }


def read_metrics(folder: Path) -> RunMetrics | CrossValidationMetrics:
    """Read ``metrics.json`` of a finished run or cross-validation."""
    content = read_json(folder / RESULT_FILE)
    kind = CrossValidationMetrics if "folds" in content else RunMetrics
    return kind.from_dict(content)
