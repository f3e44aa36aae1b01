"""The models that are served, and what the API says of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, NotRequired

import numpy as np
from pydantic import Field
from typing_extensions import TypedDict

from molattn.config import PredictConfig
from molattn.data.table import open_table
from molattn.errors import InputError, check_one_of
from molattn.inference.predict import Reference, prediction_spec
from molattn.inference.streaming import (
    OutputSpec,
    compute_rows,
    inference_context,
    molecule_batches,
)
from molattn.model.artefact import PACKAGED, find_model
from molattn.model.model import MolAttn
from molattn.model.training_set import LEVELS, Endpoint, LabelDistribution, percentile
from molattn.model.uncertainty import ConformalScores
from molattn.task import Task, TaskKind
from molattn.version import __version__

LEVEL = PredictConfig.interval


class Neighbor(TypedDict):
    """A training molecule."""

    smiles: str
    similarity: float
    labels: dict[str, float | str | None]


class Labels(TypedDict):
    """The training labels of a task, or the predictions of the molecules of ``--reference``."""

    name: NotRequired[str]
    count: NotRequired[int | None]
    quantiles: list[float] | None
    class_counts: NotRequired[dict[str, int] | None]


class SiteTaskDescription(TypedDict):
    """A task of the atoms or bonds of a molecule."""

    name: str
    kind: TaskKind
    unit: str
    classes: list[str]
    has_interval: bool


class TaskDescription(SiteTaskDescription):
    """A task of a model."""

    is_logarithm: Annotated[bool, Field(description="Whether its logarithm is learned.")]
    training: Labels
    reference: Labels | None
    card: Endpoint | None


class ModelDescription(TypedDict):
    """A model and its tasks."""

    name: str
    version: str
    level: Annotated[float, Field(description="Default level of the intervals.")]
    partner: Annotated[str | None, Field(description="Column of the second molecule, if any.")]
    features: list[str]
    has_neighbors: bool
    predicts_parents: Annotated[bool, Field(description="Of molecules, unless `as_given`.")]
    tasks: list[TaskDescription]
    atom_tasks: list[SiteTaskDescription]
    bond_tasks: list[SiteTaskDescription]


class ModelsResponse(TypedDict):
    """The models, of which the first is the default."""

    models: list[ModelDescription]


@dataclass(eq=False)
class ServedModel:
    """A model with its name, and quantiles by task of the predictions of a reference set, [101]."""

    name: str
    model: MolAttn
    reference_name: str = ""
    reference: dict[str, list[float]] = field(default_factory=dict)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of the model."""
        return self.model.config.tasks

    @lru_cache(maxsize=64)  # noqa: B019 (as many models as are served, for the life of a process)
    def spec(self, level: float, reference: Reference | None = None) -> OutputSpec:
        """Return the output columns of a prediction at a level, and of the difference from one."""
        return prediction_spec(self.model, level, reference=reference)

    @cached_property
    def as_given(self) -> "ServedModel":
        """The model that reads molecules as given."""
        return replace(self, model=self.model.as_given())

    @property
    def has_neighbors(self) -> bool:
        """Whether the model keeps its training molecules."""
        training = self.model.training_set
        return training is not None and training.molecules is not None

    def labels(self, task: Task) -> LabelDistribution | None:
        """Return how the training labels of a task are distributed; None = not known."""
        training = self.model.training_set
        return None if training is None else training.labels[self.tasks.index(task)]

    def percentile(self, task: Task, value: float) -> float | None:
        """Return where a value lies among the reference set, else the training, from 0 to 100."""
        labels = self.labels(task)
        quantiles = self.reference.get(task.name) or (labels.quantiles if labels else ())
        exact = percentile(value, quantiles)
        return None if exact is None else round(exact, 1)

    def describe(self) -> ModelDescription:
        """Return what ``/models`` says of the model."""
        config = self.model.config
        return {
            "name": self.name,
            "version": __version__,
            "level": LEVEL,
            "partner": config.partner_column,
            "features": list(config.features),
            "has_neighbors": self.has_neighbors,
            "predicts_parents": config.standardize == "parent",
            "tasks": [self._describe(task) for task in config.tasks],
            "atom_tasks": [self._describe_of_sites(task) for task in config.atom_tasks],
            "bond_tasks": [self._describe_of_sites(task) for task in config.bond_tasks],
        }

    def _describe_of_sites(self, task: Task) -> SiteTaskDescription:
        calibration = self.model.site_calibration
        scores = calibration and calibration.scores.get(task.name)
        return {
            "name": task.name,
            "kind": task.kind,
            "unit": task.unit,
            "classes": list(task.classes),
            "has_interval": scores is not None and scores.molecules > 0,
        }

    def _describe(self, task: Task) -> TaskDescription:
        labels = self.labels(task)
        index = self.tasks.index(task)
        uncertainty = self.model.uncertainty
        scores = uncertainty and uncertainty.calibration.parts[index]
        training: Labels = {"count": None, "quantiles": None, "class_counts": None}
        if labels is not None:
            counts = dict(zip(task.classes, labels.classes, strict=True)) if task.classes else None
            quantiles = [*labels.quantiles] or None
            training = {"count": labels.count, "quantiles": quantiles, "class_counts": counts}
        values = self.reference.get(task.name)
        return {
            "name": task.name,
            "kind": task.kind,
            "unit": task.unit,
            "classes": list(task.classes),
            "is_logarithm": self.model.config.target_transforms[index].kind == "log",
            # Of any level.
            "has_interval": isinstance(scores, ConformalScores) and scores.count > 0,
            "training": training,
            "reference": {"name": self.reference_name, "quantiles": values} if values else None,
            "card": self.model.endpoints.get(task.name),
        }


@dataclass(frozen=True)
class Catalog:
    """The served models by name; the first is the default."""

    models: dict[str, ServedModel]

    def find(self, name: str | None, as_given: bool) -> ServedModel:
        """Return a model, or what it is for molecules as given; None = the first."""
        name = next(iter(self.models)) if name is None else name
        check_one_of("model", name, self.models)
        return self.models[name].as_given if as_given else self.models[name]


def load_models(paths: Sequence[str | Path], device: str = "cpu") -> Catalog:
    """Load models on a device, each named by the last part of its folder, or its packaged name."""
    models: dict[str, ServedModel] = {}
    for path in paths:
        folder = find_model(path)
        name = _name(folder)
        if name in models:
            raise InputError(
                f"{path}: another model is named {name!r} too, expected folders whose last parts "
                "differ"
            )
        model = MolAttn.from_pretrained(folder).to(device)
        models[name] = ServedModel(name, model)
    return Catalog(models)


def add_reference(served: ServedModel, path: Path, options: PredictConfig) -> int:
    """Predict a table and keep the quantiles; return the number of rows without a prediction."""
    table = open_table(path, options=options)
    spec = served.spec(LEVEL)
    table.use(options, *served.model.config.input_columns)
    columns = [[*spec.columns].index(task.output_names[0]) for task in served.tasks]
    values = list[list[Any]]()
    refused = 0
    with inference_context(served.model, options.threads):
        for batch in molecule_batches(table, served.model, options, spec.fields):
            for _, rows, code in compute_rows(spec, batch):
                refused += bool(code)
                if not code:
                    values.append([rows[0][column] for column in columns])
    if not values:
        raise InputError(f"{path}: got no molecule with a prediction, expected one or more")
    quantiles = np.quantile(np.array(values, float), LEVELS, axis=0)
    served.reference_name = path.stem
    served.reference = {
        task.name: column.tolist()
        for task, column in zip(served.tasks, quantiles.T, strict=True)
        if task.kind != "multiclass"
    }
    return refused


def _name(folder: Path) -> str:
    folder = folder.resolve()
    is_of_run = folder.name == "model" and folder.parent != PACKAGED.resolve()
    return folder.parent.name if is_of_run else folder.name
