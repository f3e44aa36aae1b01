"""Predictions of a model: its networks, Gaussian process and calibration together."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from molattn.chem.fingerprint_index import FingerprintIndex, read_fingerprints
from molattn.chem.fingerprints import Fingerprint
from molattn.chem.parse import Molecule
from molattn.chem.reader import Fields
from molattn.errors import InputError, SmilesError, quoted
from molattn.model.confidence import grades, guess_error
from molattn.model.config import MolAttnConfig
from molattn.model.gaussian_process import GaussianProcessHead, Neighbor
from molattn.model.kernel import KernelInputs
from molattn.model.networks import Networks, Records
from molattn.model.outputs import mean_of_members
from molattn.model.scaling import table_features
from molattn.model.target_transform import own_units
from molattn.model.training_set import Measured, TrainingMolecule, TrainingMolecules, TrainingSet
from molattn.model.uncertainty import Prediction, ProbabilityScaling, Uncertainty
from molattn.task import output_slices
from molattn.utils.console import three_digits

Array = NDArray[np.float64]

ONE_SIGMA = 0.6827
"""Coverage of the mean ± standard deviation of a normal distribution."""
# 90% intervals of the solubility of 523 salts and mixtures have 94% of their labels, with 1 83%.
_SIMILARITY_OF_SALTS = 0.5


@dataclass(frozen=True, eq=False)
class Predictor:
    """Combines the parts of a model: networks, Gaussian process, calibration and training set.

    All but the networks may be missing. The methods of :class:`molattn.MolAttn` read molecules and
    call those of this class. Ask the model for it again after moving or scaling the model.
    """

    networks: Networks
    gaussian_process: GaussianProcessHead | None
    uncertainty: Uncertainty | None
    training_set: TrainingSet | None

    @property
    def config(self) -> MolAttnConfig:
        """The configuration of the model."""
        return self.networks.config

    # Predictions.

    def predict_outputs(
        self, records: Records, batch_size: int = 256, *, features: ArrayLike | None = None
    ) -> Array:
        """Predict with each member on the transformed scale and in logits, ``[members, n, O]``."""
        networks, inputs = self.networks.predict(records, batch_size, features=features)
        outputs = self.with_gaussian_process(networks, inputs)
        return self.with_written(outputs, records, batch_size)

    def with_written(self, outputs: Array, records: Records, batch_size: int = 256) -> Array:
        """Replace outputs of tasks that are predicted of molecules as written, in a copy.

        The molecules as written are predicted without table features.
        """
        columns = self.config.written_output_indices
        predict = partial(self.predict_outputs, batch_size=batch_size)
        return _with_columns_of_written(outputs, columns, records, predict)

    def with_gaussian_process(self, outputs: Array, inputs: KernelInputs) -> Array:
        """Add the Gaussian process to outputs of the networks; return the transformed scale."""
        if self.gaussian_process is not None:
            outputs = self.gaussian_process.combine(outputs, inputs)
        return self.networks.scaling.to_transformed(outputs)

    @property
    def has_untrained_head(self) -> bool:
        """Whether the Gaussian process alone was trained, and predicts alone."""
        return self.gaussian_process is not None and bool((self.gaussian_process.shares == 1).all())

    def values(self, outputs: Array) -> Array:
        """Convert :meth:`predict_outputs` to own units and calibrated probabilities."""
        mean = self.mean(outputs)
        if self.uncertainty is None:
            return self.values_of_members(mean)
        calibrated = torch.from_numpy(self.uncertainty.calibration.calibrated(mean))
        values = own_units(calibrated, self.config.tasks, self.config.target_transforms).numpy()
        return values.clip(*self.output_limits)

    def values_of_members(self, outputs: Array) -> Array:
        """Convert outputs of each member to own units and probabilities, not calibrated."""
        return self.networks.scaling.in_own_units(outputs).clip(*self.output_limits)

    def mean(self, outputs: Array) -> Array:
        """Return the mean over members, on the transformed scale and in logits, ``[n, O]``."""
        return mean_of_members(torch.from_numpy(outputs), self.config.tasks).numpy()

    @property
    def output_limits(self) -> Array:
        """Smallest and largest value of each output, ``[2, num_outputs]``: 0 and 100 in percent."""
        limits = np.repeat([[-math.inf], [math.inf]], len(self.config.output_names), axis=1)
        slices = output_slices(self.config.tasks)
        for columns, is_percentage in zip(slices, self._is_percentage, strict=True):
            if is_percentage:
                limits[:, columns] = [[0.0], [100.0]]
        return limits

    @property
    def _is_percentage(self) -> list[bool]:
        tasks = self.config.tasks
        if self.training_set is None:
            return [False] * len(tasks)
        return [self.training_set.is_percentage(task, index) for index, task in enumerate(tasks)]

    # Uncertainty.

    def predict_with_uncertainty(
        self, smiles: Sequence[Molecule], level: float, batch_size: int, **inputs: Any
    ) -> Prediction:
        """Predict molecules with intervals of a nominal coverage; the model must be calibrated."""
        self.calibrated_uncertainty()
        return self.prediction(*self._read_and_predict(smiles, batch_size, **inputs), level)

    def prediction(self, outputs: Array, records: Records, level: float) -> Prediction:
        """Combine the output of :meth:`predict_outputs` with the uncertainty, if there is any.

        A molecule with an element, a charge or more atoms than any training molecule is as
        uncertain as one of similarity 0 to them.
        """
        tasks = self.config.tasks
        mean = self.mean(outputs)
        values = self.values(outputs)
        undefined = np.full((len(mean), len(tasks)), math.nan)
        low = high = similarity = closeness = error = undefined
        confidence = np.full(undefined.shape, "")
        if self.uncertainty is not None:
            similarity, closeness, nearby = self._surroundings(records)
            low, high = self.intervals(mean, closeness, level)
            confidence, error = self.grade(values, mean, closeness, nearby)
        std = undefined.copy()
        if len(outputs) > 1:
            rows = np.arange(len(mean))
            members = self.networks.scaling.in_own_units(outputs)
            for index, columns in enumerate(output_slices(tasks)):
                likeliest = columns.start + values[:, columns].argmax(axis=1)
                std[:, index] = members[:, rows, likeliest].std(axis=0, ddof=1)
        # Each training molecule has a label.
        nearest = similarity.max(axis=1, initial=-math.inf)
        grade = confidence, error
        return Prediction(values, low, high, std, nearest, similarity, *grade, closeness)

    def _surroundings(self, records: Records) -> Array:
        """Return what errors of molecules depend on, ``[3, n, T]``.

        These are the similarity to the nearest training molecule; the same, but 0 of a molecule
        with an element, a charge or a size that is new, and half of it of a salt as written;
        and the relative errors nearby, then 1, or at least 1.
        """
        index = self.calibrated_uncertainty().fingerprints
        prints: list[Any] = [record.fingerprint for record in records]
        similarity, nearby = index.neighbor_errors(prints, len(self.config.tasks))
        lacks = index.seen is not None and index.seen.lacks(records, self.config.featurizer)
        arrays = [similarity, np.where(lacks, 0.0, similarity), np.where(lacks, 1.0, nearby)]
        columns = self.config.written_task_indices
        return _with_columns_of_written(np.stack(arrays), columns, records, self._of_salts)

    def _of_salts(self, records: Records) -> Array:
        """Return :meth:`_surroundings`; a salt may be most similar to its free base or acid.

        Small errors nearby may be those of bases and acids, too.
        """
        surroundings = self._surroundings(records)
        surroundings[1] *= _SIMILARITY_OF_SALTS
        surroundings[2] = np.maximum(surroundings[2], 1.0)
        return surroundings

    def grade(
        self, prediction: Array, mean: Array, similarity: Array, nearby: Array
    ) -> tuple[NDArray[np.str_], Array]:
        """Return the confidence and the expected error of predictions, in own units, ``[n, T]``.

        The arguments are those of ``Calibration.expected_errors``, and means on the transformed
        scale.
        """
        tasks = self.config.tasks
        calibration = self.calibrated_uncertainty().calibration
        guesses = np.array(self.guess_errors())
        errors = calibration.expected_errors(prediction, similarity, guesses, nearby)
        low, high = self.networks.scaling.ends(mean, errors, self._is_percentage)
        is_number = [task.kind == "regression" for task in tasks]
        expected = np.where(is_number, (high - low) / 2, errors)
        return grades(errors, guesses), expected

    def guess_errors(self) -> list[float]:
        """Return the error of a guess for each task, on the transformed scale."""
        labels = self.training_set and self.training_set.labels
        scales = self.networks.scaling.target_scale.tolist()
        guesses = []
        for index, transform in enumerate(self.config.target_transforms):
            quantiles = torch.tensor(labels[index].quantiles if labels else (), dtype=torch.float64)
            transformed = transform.forward(quantiles).numpy()
            guesses.append(guess_error(self.config.tasks[index], transformed, scales[index]))
        return guesses

    def confidence_reasons(self, records: Records) -> Iterator[list[str]]:
        """Yield for each molecule what the confidence of each task rests on."""
        config = self.config
        calibration = self.calibrated_uncertainty().calibration
        seen = self.calibrated_uncertainty().fingerprints.seen
        similarities, closeness, ratios = self._surroundings(records)
        certain = np.ones((len(records), len(config.output_names)))  # classes: the least error
        guesses = np.array(self.guess_errors())
        errors = calibration.expected_errors(certain, closeness, guesses, ratios)
        numbers = (similarities.tolist(), ratios.tolist(), errors.tolist())
        for record, *row in zip(records, *numbers, strict=True):
            reasons = []
            for task, (similarity, nearby, error) in enumerate(zip(*row, strict=True)):
                form = (task in config.written_task_indices and record.written) or record
                texts = [f"nearest {similarity:.2f}"]
                if form is not record:
                    counted = _SIMILARITY_OF_SALTS * similarity
                    texts[0] += f", counts {counted:.2f} as the molecule is a salt or mixture"
                if seen is not None:
                    texts += seen.reasons(form, config.featurizer, task)
                if len(texts) == 1 and nearby != 1.0:  # as it is where errors are unknown
                    texts.append(f"errors nearby {nearby:.2f} times the mean")
                elif len(texts) == 1 and isinstance(calibration.parts[task], ProbabilityScaling):
                    texts.append(f"expected error at least {error:.2f}")
                if config.target_transforms[task].kind == "log" and not math.isnan(error):
                    texts.append(f"expected error a factor of {three_digits(math.exp(error))}")
                reasons.append("; ".join(texts))
            yield reasons

    def intervals(self, mean: Array, similarity: Array, level: float) -> tuple[Array, Array]:
        """Return the ends of intervals in own units, of means on the transformed scale."""
        half_widths = self.calibrated_uncertainty().calibration.half_widths(similarity, level)
        return self.networks.scaling.ends(mean, half_widths, self._is_percentage)

    @property
    def tasks_with_probability_intervals(self) -> list[int]:
        """Indices of binary tasks that have a Gaussian process with a saved noise."""
        noises = () if self.gaussian_process is None else self.gaussian_process.noises
        others = self.config.written_task_indices
        tasks = enumerate(self.config.tasks if len(noises) else ())
        return [index for index, task in tasks if task.kind == "binary" and index not in others]

    def probability_intervals(self, outputs: Array, inputs: KernelInputs, level: float) -> Array:
        """Return low and high of each of :attr:`tasks_with_probability_intervals`, ``[n, 2 * T]``.

        The logit of :meth:`with_gaussian_process` is normal, with the standard deviation of the
        Gaussian process, as the networks learned from the same labels. Its quantiles are calibrated
        as it is.
        """
        process: Any = self.gaussian_process
        slices = output_slices(self.config.tasks)
        columns = {task: slices[task].start for task in self.tasks_with_probability_intervals}
        mean = self.mean(outputs)
        widths = np.zeros_like(mean)
        for task, column in columns.items():
            widths[:, column] = process.logit_stds(inputs, task)
        widths *= NormalDist().inv_cdf((1.0 + level) / 2.0)
        ends = [self.values(logits[None]) for logits in (mean - widths, mean + widths)]
        return np.stack(ends, axis=-1)[:, [*columns.values()]].reshape(len(mean), 2 * len(columns))

    def least_std(self, task: int) -> float:
        """Return the standard deviation of the most certain predictions, in scaled units."""
        scores: Any = self.calibrated_uncertainty().calibration.parts[task]
        return scores.bound(ONE_SIGMA) / float(self.networks.scaling.target_scale[task])

    def calibrate(
        self,
        smiles: Sequence[Molecule],
        targets: ArrayLike,
        training_smiles: Sequence[Molecule],
        **inputs: Any,
    ) -> Uncertainty:
        """Return a new calibration; see :meth:`molattn.MolAttn.calibrate`."""
        tasks = self.config.tasks
        labels = np.asarray(targets, dtype=np.float64)
        if labels.shape != (expected := (len(smiles), len(tasks))):
            raise ValueError(f"targets: got {labels.shape}, expected {expected}")
        columns = zip(tasks, self.config.target_transforms, labels.T, strict=True)
        for task, transform, column in columns:
            values = column[~np.isnan(column)]
            classes = range(len(task.classes))
            fits = np.isin(values, classes) if task.classes else np.isfinite(values)
            if bad := values[~fits | ((transform.kind == "log") & (values <= 0.0))].tolist():
                message = f"got {bad[0]:g}, which is no label of {quoted(task.name)}"
                raise ValueError(f"targets: {message}")
        outputs, records = self._read_and_predict(smiles, **inputs)
        held_out: list[Any] = [record.fingerprint for record in records]
        molecules = FingerprintIndex.from_fingerprints(self.read_fingerprints(training_smiles))
        guesses = self.guess_errors()
        return Uncertainty.fit(self.config, molecules, held_out, outputs, labels, guesses)

    def calibrated_uncertainty(self) -> Uncertainty:
        """Return the uncertainty; a model without one raises ValueError."""
        if self.uncertainty is None:
            raise ValueError("the model is not calibrated; call MolAttn.calibrate first")
        return self.uncertainty

    def read_fingerprints(self, smiles: Sequence[Molecule | Fingerprint]) -> list[Fingerprint]:
        """Return the fingerprints of molecules as the model reads them."""
        unify = self.config.unify_drawings
        return read_fingerprints(smiles, standardize=self.config.standardize, unify=unify)

    def read_valid(
        self,
        smiles: Sequence[Molecule],
        partners: Sequence[Molecule] | None = None,
        features: ArrayLike | None = None,
    ) -> tuple[list[Any], list[int], Array | None]:
        """Read molecules; return a record or an error of each, and indices and features of records.

        ``features`` are those of :meth:`molattn.MolAttn.predict`.
        """
        reader = self.networks.reader(partners)
        molecules = [*replace(reader, fields=self.input_fields())(smiles, partners)]
        rows = [row for row, read in enumerate(molecules) if not isinstance(read, SmilesError)]
        table = table_features(features, len(molecules), self.config)
        return molecules, rows, None if table is None else table.numpy()[rows]

    def _read_and_predict(
        self, smiles: Sequence[Molecule], batch_size: int = 256, partners: Any = None, **inputs: Any
    ) -> tuple[Array, Records]:
        records = self.networks.read(smiles, partners, fingerprint=True)
        outputs = self.predict_outputs(records, batch_size, **inputs)
        return outputs, records

    # Training rows.

    @property
    def keeps_labels(self) -> bool:
        """Whether the labels of training molecules are kept, and depend on the molecule alone."""
        molecules = self.training_set and self.training_set.molecules
        return self.uncertainty is not None and bool(molecules) and not self.config.input_columns

    def input_fields(self) -> Fields:
        """Return what predictions, their uncertainty and measured labels are found by."""
        has_fingerprint = self.uncertainty is not None
        return self.config.input_fields(fingerprint=has_fingerprint, smiles=self.keeps_labels)

    def measured(self, records: Records) -> list[list[Measured]]:
        """Return the training labels of molecules; see :meth:`molattn.MolAttn.measured`.

        The records have fingerprints and canonical SMILES.
        """
        molecules = self.training_set and self.training_set.molecules
        if not self.keeps_labels or not molecules:
            return [[Measured()] * len(self.config.tasks)] * len(records)
        prints: list[Any] = [record.fingerprint for record in records]
        indices = self.calibrated_uncertainty().fingerprints.indices(prints).tolist()
        labels = [
            molecules.measured(record.smiles or "", index, self.config)
            for record, index in zip(records, indices, strict=True)
        ]
        if self.config.written_tasks:
            config = replace(self.config, standardize="uncharged", written_tasks=())
            reader = replace(self, networks=replace(self.networks, config=config))
            written = reader.measured([record.written or record for record in records])
            for row, as_written in zip(labels, written, strict=True):
                for task in self.config.written_task_indices:
                    row[task] = as_written[task]
        return labels

    def nearest(
        self, smiles: Sequence[Molecule | Fingerprint], count: int
    ) -> list[list[TrainingMolecule]]:
        """Return similar training molecules; see :meth:`molattn.MolAttn.nearest`."""
        molecules = self.training_molecules()
        if count < 1:
            raise ValueError(f"count: got {count}, expected a whole number of at least 1")
        index = self.calibrated_uncertainty().fingerprints
        return molecules.nearest(self.read_fingerprints(smiles), count, index, self.config.tasks)

    def training_molecules(self) -> TrainingMolecules:
        """Return the training molecules; a model that keeps none raises ValueError."""
        molecules = self.training_set and self.training_set.molecules
        if not molecules:
            expected = "train with keep_training_molecules=True"
            raise ValueError(f"the model keeps no training molecules; {expected}")
        return molecules

    def neighbors(
        self, records: Records, inputs: KernelInputs, count: int, batch_size: int = 256
    ) -> dict[str, list[list[Neighbor]]]:
        """Return :meth:`molattn.MolAttn.neighbors` of records by their inputs of kernels."""
        process = self.check_neighbors(count)
        rows = self.training_set and self.training_set.molecules
        smiles = dict(zip(rows.rows.tolist(), rows.smiles, strict=True)) if rows else {}
        scales = self.networks.scaling.target_scale.tolist()
        neighbors = process.neighbors(inputs, count, smiles, scales)
        if written := {row: x.written for row, x in enumerate(records) if x.written is not None}:
            _, inputs = self.networks.predict([*written.values()], batch_size)
            as_written = process.neighbors(inputs, count, smiles, scales)
            for name in self.config.written_tasks:
                for row, of_row in zip(written, as_written[name], strict=True):
                    neighbors[name][row] = of_row
        return neighbors

    def check_neighbors(self, count: int, option: str = "count") -> GaussianProcessHead:
        """Return the Gaussian process, if it has that many neighbors."""
        if self.gaussian_process is None:
            message = "the model has no Gaussian process of molecules, and thus no neighbors"
            raise InputError(message, option=option)
        most = int((self.gaussian_process.rows >= 0).sum())
        if not 1 <= count <= most:
            raise InputError(
                f"got {count}, expected a whole number from 1 to {most}, the number of inducing "
                "points",
                option=option,
            )
        return self.gaussian_process


def _with_columns_of_written(
    arrays: Array,
    columns: Sequence[int],
    records: Records,
    calculate: Callable[[Records], Array],
) -> Array:
    """Calculate columns of arrays ``[..., n, columns]`` again, of molecules as written."""
    written = {row: record.written for row, record in enumerate(records) if record.written}
    if written:
        arrays = arrays.copy()
        rows = np.array([*written])[:, None]
        arrays[..., rows, columns] = calculate([*written.values()])[..., columns]
    return arrays
