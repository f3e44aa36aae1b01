"""Predictions of a model: its networks, Gaussian process and calibration together."""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from molattn.chem.fingerprint_index import FingerprintIndex, read_fingerprints
from molattn.chem.fingerprints import Fingerprint
from molattn.chem.parse import Molecule
from molattn.errors import InputError, quoted
from molattn.model.confidence import grades, guess_error
from molattn.model.config import MolAttnConfig
from molattn.model.gaussian_process import GaussianProcessHead, Neighbor
from molattn.model.kernel import KernelInputs
from molattn.model.module import Array, NetworkModule, Records
from molattn.model.outputs import mean_of_members
from molattn.model.target_transform import TargetTransform, own_units
from molattn.model.training_set import Endpoint, TrainingMolecule, TrainingSet
from molattn.model.uncertainty import Prediction, Uncertainty
from molattn.record import MoleculeRecord
from molattn.task import check_columns, output_slices

_LARGE = 1000.0
_LEAST_WEIGHT = 0.005  # of the networks, printed as 0%


class Predictor(NetworkModule):
    """Predicts with the networks, the Gaussian process and the calibration of a model.

    Methods take n SMILES or RDKit molecules, and with them: ``batch_size``, molecules in a batch,
    fewer where they are large; ``partners``, the second molecule of each, such as its solvent,
    where the model takes one; and ``features``, extra features ``[n, len(config.features)]``, if
    the config names any.

    They raise ``SmilesError`` for an invalid molecule, with its position and the reason;
    ``TypeError`` for a molecule in place of a list; and ``ValueError`` for partners or features
    that are missing, not used by the model, of another shape or not finite.
    """

    uncertainty: Uncertainty | None = None  # calibration and training molecules
    gaussian_process: GaussianProcessHead | None = None  # combined with the networks
    training_set: TrainingSet | None = None  # distribution of the training labels, molecules
    endpoints: Mapping[str, Endpoint] = MappingProxyType({})  # what tasks mean

    def set_target_scaling(
        self, mean: ArrayLike, scale: ArrayLike, transforms: Sequence[TargetTransform] = ()
    ) -> None:
        """Set how labels are scaled: the transform of each task, then mean and scale.

        Means and standard deviations ``[num_tasks]`` are those of transformed training labels, and
        0 and 1 of classes. This removes the calibration and the Gaussian process.
        """
        config = replace(self.config, target_transforms=tuple(transforms))
        self._set_scaling("target", mean, scale)
        self.config = config
        self.uncertainty = self.gaussian_process = None

    def as_given(self) -> Self:
        """Return the model with the same weights that reads molecules as given, not their parents.

        Raises:
            InputError: A model that was trained with ``--standardize``, and always standardizes.
        """
        if self.config.standardize is True:
            message = "the model was trained on standardized molecules, and predicts no others"
            raise InputError(message, option="as_given")
        model = copy.copy(self)
        model.config = replace(self.config, standardize=False)
        return model

    # Predictions.

    def predict(
        self,
        smiles: Sequence[Molecule],
        batch_size: int = 256,
        *,
        partners: Sequence[Molecule] | None = None,
        features: ArrayLike | None = None,
        members: bool = False,
        as_given: bool = False,
    ) -> Array:
        """Predict molecules, ``[n, num_outputs]`` ordered as ``config.output_names``.

        Regressions are in the targets' own units, classifications are probabilities, calibrated if
        the model is. An ensemble predicts the mean of its members, of a transformed target on the
        transformed scale. With ``members`` it returns the uncalibrated prediction of each instead,
        ``[members, n, num_outputs]``. For ``as_given`` see :meth:`as_given`.
        """
        reader = (self.as_given() if as_given else self).reader(partners, numbers=True)
        records = reader.all(smiles, partners)
        outputs = self.predict_outputs(records, batch_size, features=features)
        if members:
            return self.in_own_units(outputs).clip(*self.output_limits)
        return self.values(outputs)

    def predict_outputs(
        self, records: Records, batch_size: int = 256, *, features: ArrayLike | None = None
    ) -> Array:
        """Predict with each member on the transformed scale and in logits, ``[members, n, O]``."""
        networks = self.network_outputs(records, batch_size, features=features)
        return self.with_gaussian_process(*networks)

    def with_gaussian_process(self, outputs: Array, inputs: KernelInputs) -> Array:
        """Add the Gaussian process to :meth:`network_outputs`; to the transformed scale."""
        if self.gaussian_process is not None:
            outputs = self.gaussian_process.combine(outputs, inputs)
        return self.to_transformed(outputs)

    @property
    def has_untrained_head(self) -> bool:
        """Whether the Gaussian process alone was trained, and predicts alone."""
        return self.gaussian_process is not None and bool((self.gaussian_process.shares == 1).all())

    def _mean(self, outputs: Array) -> Array:
        return mean_of_members(torch.from_numpy(outputs), self.config.tasks).numpy()

    def values(self, outputs: Array) -> Array:
        """Convert :meth:`predict_outputs` to own units and calibrated probabilities."""
        mean = self._mean(outputs)
        if self.uncertainty is None:
            return self.in_own_units(mean).clip(*self.output_limits)
        calibrated = torch.from_numpy(self.uncertainty.calibration.calibrated(mean))
        values = own_units(calibrated, self.config.tasks, self.config.target_transforms).numpy()
        return values.clip(*self.output_limits)

    @property
    def output_limits(self) -> Array:
        """Smallest and largest value of each output, ``[2, num_outputs]``: 0 and 100 in percent."""
        tasks = self.config.tasks
        limits = np.repeat([[-math.inf], [math.inf]], len(self.config.output_names), axis=1)
        for index, part in enumerate(output_slices(tasks)):
            if self.training_set and self.training_set.is_percentage(tasks[index], index):
                limits[:, part] = [[0.0], [100.0]]
        return limits

    # Uncertainty.

    def predict_interval(
        self, smiles: Sequence[Molecule], level: float = 0.9, batch_size: int = 256, **inputs: Any
    ) -> tuple[Array, Array]:
        """Predict intervals with a given nominal coverage, for regression targets.

        The half-width grows with the distance to the training molecules, on the transformed scale;
        see :mod:`molattn.model.uncertainty`. Of a target in percent whose training labels are from
        0 to 100, prediction and interval end there.

        Returns:
            Lower and upper ends, ``[n, num_tasks]`` each, in the targets' own units; infinite where
            a task had too few labels for the level, NaN for classifications.

        Raises:
            InputError: A level that is not between 0 and 1, or a model that is not calibrated.
        """
        self._check_calibrated()
        outputs, fingerprints = self._outputs_and_fingerprints(smiles, batch_size, **inputs)
        found = self.prediction(outputs, fingerprints, level)
        return found.low, found.high

    def prediction(
        self, outputs: Array, molecules: Sequence[Molecule | Fingerprint], level: float
    ) -> Prediction:
        """Combine the output of :meth:`predict_outputs` with the uncertainty, if there is any."""
        tasks, mean = self.config.tasks, self._mean(outputs)
        low = high = similarity = np.full((len(mean), len(tasks)), math.nan)
        found, std, error = self.values(outputs), low.copy(), low
        confidence = np.full(low.shape, "")
        if self.uncertainty is not None:
            similarity = self.uncertainty.fingerprints.task_similarity(molecules, len(tasks))
            low, high = self.intervals(mean, similarity, level)
            confidence, error = self._confidence(found, mean, similarity)
        if len(outputs) > 1:
            rows, members = np.arange(len(mean)), self.in_own_units(outputs)
            for index, columns in enumerate(output_slices(tasks)):
                likeliest = columns.start + found[:, columns].argmax(axis=1)
                std[:, index] = members[:, rows, likeliest].std(axis=0, ddof=1)
        # Each training molecule has a label.
        nearest = similarity.max(axis=1)
        return Prediction(found, low, high, std, nearest, similarity, confidence, error)

    def predict_confidence(
        self, smiles: Sequence[Molecule], batch_size: int = 256, **inputs: Any
    ) -> tuple[NDArray[np.str_], Array]:
        """Grade predictions by their expected error, that of calibration rows as far from training.

        Returns:
            The confidence of each prediction, ``high``, ``medium``, ``low``, or empty where a task
            had too few labels to calibrate, ``[n, num_tasks]``; see
            :func:`molattn.model.confidence.grades`. And the expected error of each: absolute, in
            the target's own unit, or the rate at which such classes are wrong; NaN where unknown.

        Raises:
            InputError: A model that is not calibrated.
        """
        self._check_calibrated()
        outputs, fingerprints = self._outputs_and_fingerprints(smiles, batch_size, **inputs)
        found = self.prediction(outputs, fingerprints, 0.5)
        return found.confidence, found.expected_error

    def _confidence(
        self, prediction: Array, mean: Array, similarity: Array
    ) -> tuple[NDArray[np.str_], Array]:
        config, labels = self.config, self.training_set and self.training_set.labels
        calibration = self._check_calibrated().calibration
        errors = calibration.expected_errors(prediction, similarity)
        guesses, scales = [], self.target_scale.tolist()
        for index, (task, transform) in enumerate(
            zip(config.tasks, config.target_transforms, strict=True)
        ):
            known = torch.tensor(labels[index].quantiles if labels else (), dtype=torch.float64)
            guesses.append(guess_error(task, transform.forward(known).numpy(), scales[index]))
        low, high = self._ends(mean, errors)
        is_number = [task.kind == "regression" for task in config.tasks]
        expected = np.where(is_number, (high - low) / 2, errors)
        return grades(errors, np.array(guesses)), expected

    def intervals(self, mean: Array, similarity: Array, level: float) -> tuple[Array, Array]:
        """Return the ends of intervals in own units, of means on the transformed scale."""
        return self._ends(mean, self._check_calibrated().calibration.half_widths(similarity, level))

    def _ends(self, mean: Array, half: Array) -> tuple[Array, Array]:
        low, high, tasks = half.copy(), half.copy(), self.config.tasks
        columns = zip(output_slices(tasks), self.config.target_transforms, strict=True)
        for index, (part, transform) in enumerate(columns):

            def own(values: Array, transform: TargetTransform = transform) -> Array:
                found = transform.inverse(torch.from_numpy(values)).numpy()
                return np.where(np.isinf(values), values, found)

            middle, width = mean[:, part.start], half[:, index]
            low[:, index], high[:, index] = own(middle - width), own(middle + width)
            if self.training_set and self.training_set.is_percentage(tasks[index], index):
                value = transform.forward(torch.from_numpy(own(middle).clip(0.0, 100.0))).numpy()
                known = np.isfinite(width)
                low[known, index] = own(value - width)[known].clip(0.0, 100.0)
                high[known, index] = own(value + width)[known].clip(0.0, 100.0)
        return low, high

    def training_similarity(self, smiles: Sequence[Molecule]) -> Array:
        """Return each molecule's Tanimoto similarity to the nearest training molecule, ``[n]``.

        Morgan counts of radius 2 are compared, without the second molecule. Errors tend to be
        larger for molecules that are unlike all training molecules.

        Raises:
            InputError: A model that is not calibrated.
        """
        return self._check_calibrated().fingerprints.similarity(self._fingerprints(smiles))

    def calibrate(
        self,
        smiles: Sequence[Molecule],
        targets: ArrayLike,
        training_smiles: Sequence[Molecule],
        **inputs: Any,
    ) -> None:
        """Fit prediction intervals and calibrate probabilities; training does this by itself.

        The molecules must not be those of the training, ``training_smiles``. Their labels
        ``[n, num_tasks]`` are in own units or class indices, NaN where missing; ``inputs`` are
        their ``partners`` and ``features``.
        """
        labels, config = np.asarray(targets, dtype=np.float64), self.config
        if labels.shape != (expected := (len(smiles), len(config.tasks))):
            raise ValueError(f"targets: got {labels.shape}, expected {expected}")
        columns = zip(config.tasks, config.target_transforms, labels.T, strict=True)
        for task, transform, column in columns:
            known = column[~np.isnan(column)]
            fits = np.isin(known, range(len(task.classes))) if task.classes else np.isfinite(known)
            if bad := known[~fits | ((transform.kind == "log") & (known <= 0.0))].tolist():
                raise InputError(
                    f"targets: got {bad[0]:g}, which is no label of {quoted(task.name)}"
                )
        outputs, held_out = self._outputs_and_fingerprints(smiles, **inputs)
        molecules = FingerprintIndex.from_fingerprints(self._fingerprints(training_smiles))
        self.uncertainty = Uncertainty.fit(config, molecules, held_out, outputs, labels)
        if self.training_set is not None:  # its molecules refer to other fingerprints
            self.training_set = replace(self.training_set, molecules=None)

    # Training rows.

    def nearest(
        self, smiles: Sequence[Molecule | Fingerprint], count: int = 3
    ) -> list[list[TrainingMolecule]]:
        """Return the ``count`` most similar training molecules of each, with their labels.

        Training molecules are kept on request, by ``keep_training_molecules`` of
        :func:`molattn.train`; otherwise an InputError is raised.
        """
        molecules = self.training_set and self.training_set.molecules
        if not molecules:
            raise InputError(
                "the model keeps no training molecules; train with --keep-training-molecules"
            )
        if count < 1:
            raise InputError(f"got {count}, expected a whole number of at least 1", option="count")
        known = self._check_calibrated().fingerprints
        return molecules.nearest(self._fingerprints(smiles), count, known, self.config.tasks)

    def neighbors(
        self,
        smiles: Sequence[Molecule],
        count: int = 5,
        batch_size: int = 256,
        *,
        partners: Sequence[Molecule] | None = None,
        features: ArrayLike | None = None,
    ) -> dict[str, list[list[Neighbor]]]:
        """Return the ``count`` training rows that contribute most to predictions, by task.

        Contributions are on the transformed scale of the task, largest absolute value first. Those
        of all inducing points, together with a constant, add up to what the Gaussian process
        contributes; for a classification see
        :meth:`molattn.model.gaussian_process.GaussianProcessHead.neighbors`.

        Raises:
            InputError: No Gaussian process, or a count above the number of inducing points.
        """
        self.check_neighbors(count)
        records = self._records(smiles, partners)
        _, inputs = self.network_outputs(records, batch_size, features=features)
        return self.neighbors_of_inputs(inputs, count)

    def neighbors_of_inputs(
        self, inputs: KernelInputs, count: int
    ) -> dict[str, list[list[Neighbor]]]:
        """Return :meth:`neighbors` of molecules by their inputs of kernels."""
        rows = self.training_set and self.training_set.molecules
        smiles = dict(zip(rows.rows.tolist(), rows.smiles, strict=True)) if rows else {}
        process, scales = self.check_neighbors(count), self.target_scale.tolist()
        return process.neighbors(inputs, count, smiles, scales)

    def check_neighbors(self, count: int, option: str = "count") -> GaussianProcessHead:
        """Return the Gaussian process, if it has that many neighbors."""
        if self.gaussian_process is None:
            message = "the model has no Gaussian process, and thus no neighbors"
            raise InputError(message, option=option)
        most = int((self.gaussian_process.rows >= 0).sum())
        if not 1 <= count <= most:
            raise InputError(
                f"got {count}, expected a whole number from 1 to {most}, the number of inducing "
                "points",
                option=option,
            )
        return self.gaussian_process

    # Embeddings.

    def embed(
        self,
        smiles: Sequence[Molecule],
        batch_size: int = 256,
        *,
        partners: Sequence[Molecule] | None = None,
        atoms: bool = False,
    ) -> NDArray[np.float32]:
        """Return the learned embeddings of molecules, ``[n, width]``.

        An embedding is the output of the readout or, of a model that was pretrained on columns
        (``molattn pretrain --pretraining-columns``), a linear function of it, without extra
        features. That of a second molecule follows, and those of members are concatenated.

        With ``atoms`` it returns the vectors of the atoms before the readout instead, molecule
        after molecule, ``[total number of atoms, width]``, without those of second molecules.
        """
        records = self.reader(partners).all(smiles, partners)
        return self.embed_records(records, batch_size, atoms=atoms)

    def _check_calibrated(self) -> Uncertainty:
        if self.uncertainty is None:
            raise InputError("the model is not calibrated; call MolAttn.calibrate first")
        return self.uncertainty

    def _fingerprints(self, smiles: Sequence[Molecule | Fingerprint]) -> list[Fingerprint]:
        return read_fingerprints(
            smiles, standardize=self.config.standardize, unify=self.config.unify_drawings
        )

    def _records(self, smiles: Any, partners: Any, fingerprint: bool = False) -> Any:
        reader = self.reader(partners, numbers=True, fingerprint=fingerprint)
        return reader.all(smiles, partners)

    def _outputs_and_fingerprints(
        self, smiles: Sequence[Molecule], batch_size: int = 256, partners: Any = None, **inputs: Any
    ) -> tuple[Array, list[Any]]:
        records = self._records(smiles, partners, fingerprint=True)
        outputs = self.predict_outputs(records, batch_size, **inputs)
        return outputs, [record.fingerprint for record in records]


def cell_text(cell: float | str | None) -> str:
    """Return a cell for a text table: a number with 7 significant digits, or all from 1,000 on.

    The first digits of a large number may be those of the mean of the targets.
    """
    if not isinstance(cell, float):
        return "" if cell is None else str(cell)
    cell += 0.0  # -0 is 0
    return f"{cell:.7g}" if abs(cell) < _LARGE else str(float(cell))


def standardized_columns(config: MolAttnConfig) -> list[str]:
    """Return the columns of parents or standardized SMILES; none of a model without either."""
    if not config.standardize:
        return []
    names = ["standardized_smiles", "standardized_partner"]
    if config.standardize == "parent":
        names = ["parent", "partner_parent"]
    return names[: 1 + config.has_partner]


def standardized_cells(record: MoleculeRecord | None, config: MolAttnConfig) -> list[str | None]:
    """Return the cells of these columns: None where it is the molecule that was given."""
    molecules = (record, record and record.partner)[: len(standardized_columns(config))]
    return [(one and one.standardized) or None for one in molecules]


class PredictionColumns:
    """The columns and cells of a model's predictions.

    Each task has the columns of :attr:`molattn.task.Task.columns`. A regression of a calibrated
    model adds ``NAME_low`` and ``NAME_high``, the ends of its interval, and an ensemble adds
    ``NAME_std``, the standard deviation over members, for each task. A Gaussian process beside the
    networks is the same for all members, so that its share reduces it. Each task of a calibrated
    model has ``NAME_confidence`` and ``NAME_expected_error``
    (:meth:`Predictor.predict_confidence`), and its last column is ``training_similarity``. If
    training labels were missing, each task has a column ``NAME_training_similarity`` too, to the
    nearest molecule with a label of the task.
    """

    def __init__(self, model: Predictor) -> None:
        tasks, known = model.config.tasks, model.uncertainty and model.uncertainty.fingerprints
        self._tasks = [*zip(tasks, output_slices(tasks), strict=True)]
        self._is_calibrated = known is not None
        self._by_task = known is not None and known.labeled is not None
        self._is_ensemble = model.config.members > 1
        process = model.gaussian_process
        shares = np.zeros(len(tasks)) if process is None else process.shares
        self._has_networks = (1.0 - shares > _LEAST_WEIGHT).tolist()
        check_columns(tasks)
        self.columns: dict[str, str] = {}
        """The Arrow type of each column, by name."""
        for task in tasks:
            numbers = list(task.output_names)
            if task.kind != "regression":
                self.columns[task.columns[0]] = "string"
            elif self._is_calibrated:
                numbers += [f"{task.name}_low", f"{task.name}_high"]
            numbers += [f"{task.name}_std"] * self._is_ensemble
            self.columns |= dict.fromkeys(numbers, "float64")
            if self._is_calibrated:
                self.columns[f"{task.name}_confidence"] = "string"
                self.columns[f"{task.name}_expected_error"] = "float64"
            if self._by_task:
                self.columns[f"{task.name}_training_similarity"] = "float64"
        if self._is_calibrated:
            self.columns["training_similarity"] = "float64"

    def cells(self, prediction: Prediction, row: int) -> list[float | str | None]:
        """Return the cells of one molecule.

        None for the ends of an infinite interval, for a confidence and an expected error that are
        unknown, and for the standard deviation over the networks where these have no share in the
        prediction.
        """
        cells: list[float | str | None] = []
        for index, (task, part) in enumerate(self._tasks):
            cells += task.cells(prediction.prediction[row, part].tolist())
            if task.kind == "regression" and self._is_calibrated:
                ends = [float(prediction.low[row, index]), float(prediction.high[row, index])]
                cells += ends if np.isfinite(ends).all() else [None, None]
            if self._is_ensemble:
                std = float(prediction.std[row, index])
                cells.append(std if self._has_networks[index] else None)
            if self._is_calibrated:
                error = float(prediction.expected_error[row, index])
                cells.append(str(prediction.confidence[row, index]) or None)
                cells.append(None if math.isnan(error) else error)
            if self._by_task:
                cells.append(float(prediction.task_similarity[row, index]))
        return [*cells, *([float(prediction.similarity[row])] if self._is_calibrated else [])]
