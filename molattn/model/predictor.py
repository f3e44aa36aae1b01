"""Predictions of a model: its networks, Gaussian process and calibration together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from molattn.chem.fingerprint_index import FingerprintIndex, read_fingerprints
from molattn.chem.fingerprints import Fingerprint
from molattn.chem.parse import Molecule
from molattn.errors import InputError, quoted
from molattn.model.gaussian_process.head import GaussianProcessHead, Neighbor
from molattn.model.gaussian_process.kernel import KernelInputs
from molattn.model.outputs import class_probabilities, mean_of_members
from molattn.model.target_transform import own_units
from molattn.model.training_set import TrainingMolecule, TrainingSet
from molattn.model.uncertainty.model_uncertainty import Uncertainty, assemble_prediction
from molattn.record import MoleculeRecord

if TYPE_CHECKING:
    from molattn.model.model import MolAttn

__all__ = ["Predictor"]

Array = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Predictor:
    """Predicts with the networks, the Gaussian process and the calibration of a model.

    Where a method takes ``smiles``, these are n molecules, as SMILES or RDKit molecules. Further
    arguments of each: ``batch_size``, molecules in a batch, fewer where they are large;
    ``partners``, the second molecule of each, such as its solvent, where the model takes one; and
    ``features``, extra features ``[n, len(config.features)]``, if the config names any.

    All raise ``SmilesError`` for an invalid molecule, with its position and the reason;
    ``TypeError`` for a molecule in place of a list; and ``ValueError`` for partners or features
    that are missing, not used by the model, of another shape or not finite.

    Args:
        module: The networks.
        process: The Gaussian process; None = the networks predict alone.
        uncertainty: Calibration and training molecules; None = not calibrated.
        training_set: What is known of the training rows.
    """

    module: "MolAttn"
    process: Optional[GaussianProcessHead]
    uncertainty: Optional[Uncertainty]
    training_set: Optional[TrainingSet]

    def predict(
        self,
        smiles: Sequence[Molecule],
        batch_size: int = 256,
        *,
        partners: Optional[Sequence[Molecule]] = None,
        features: Optional[ArrayLike] = None,
        members: bool = False,
    ) -> Array:
        """Predict molecules, ``[n, num_outputs]``; see :meth:`predict_records`."""
        records = self._records(smiles, partners)
        return self.predict_records(records, batch_size, features=features, members=members)

    def predict_records(
        self,
        records: Sequence[MoleculeRecord],
        batch_size: int = 256,
        *,
        features: Optional[ArrayLike] = None,
        members: bool = False,
    ) -> Array:
        """Predict featurized molecules, ``[n, num_outputs]`` ordered as ``config.output_names``.

        Regressions are in the targets' own units. Classifications are probabilities, calibrated
        if the model is. An ensemble predicts the mean of its members' predictions, of a transformed
        target the mean on the transformed scale. With ``members`` it returns the prediction of each
        member instead, ``[members, n, num_outputs]``, uncalibrated.
        """
        config = self.module.config
        outputs = torch.from_numpy(self.predict_outputs(records, batch_size, features=features))
        if not members:
            outputs = mean_of_members(outputs, config.tasks)
            if self.uncertainty is not None:
                return self.uncertainty.predictions(config, outputs.numpy())
        probabilities = class_probabilities(outputs, config.tasks)
        return own_units(probabilities, config.tasks, config.target_transforms).numpy()

    def predict_outputs(
        self,
        records: Sequence[MoleculeRecord],
        batch_size: int = 256,
        *,
        features: Optional[ArrayLike] = None,
    ) -> Array:
        """Predict featurized molecules with each member, ``[members, n, num_outputs]``.

        Regressions are on the transformed scale (``config.target_transforms``), classifications are
        logits, uncalibrated.
        """
        return self.combined(*self.module.network_outputs(records, batch_size, features=features))

    def combined(self, outputs: Array, inputs: KernelInputs) -> Array:
        """Return what :meth:`predict_outputs` does, of :meth:`molattn.MolAttn.network_outputs`."""
        if self.process is not None:
            outputs = self.process.combine(outputs, inputs)
        return self.module.to_transformed(outputs)

    def predict_interval(
        self, smiles: Sequence[Molecule], level: float = 0.9, batch_size: int = 256, **inputs: Any
    ) -> tuple[Array, Array]:
        """Predict intervals with a given nominal coverage, for regression targets.

        The interval is the prediction plus and minus a half-width that grows with the distance to
        the training molecules; see :mod:`molattn.model.uncertainty.calibration`. Of a transformed
        target it is that on the transformed scale, with both ends converted to own units. Of a
        target in percent whose training labels are from 0 to 100 it ends there.

        Returns:
            Lower and upper ends, ``[n, num_tasks]`` each, in the targets' own units; infinite where
            a task had too few labels for the level, NaN for classifications.

        Raises:
            InputError: A level that is not between 0 and 1, or a model that is not calibrated.
        """
        known, config = self._calibrated(), self.module.config
        outputs, prints = self._outputs_and_fingerprints(smiles, batch_size, **inputs)
        found = assemble_prediction(config, known, outputs, prints, level, self.training_set)
        return found.low, found.high

    def training_similarity(self, smiles: Sequence[Molecule]) -> Array:
        """Return each molecule's Tanimoto similarity to the nearest training molecule, ``[n]``.

        Morgan counts of radius 2 are compared, see
        :class:`molattn.chem.fingerprint_index.FingerprintIndex`, without the second molecule.
        Errors tend to be larger for molecules that are unlike all training molecules.

        Raises:
            InputError: A model that is not calibrated.
        """
        return self._calibrated().molecules.similarity(self._fingerprints(smiles))

    def nearest(
        self, smiles: Sequence[Molecule | Fingerprint], count: int = 3
    ) -> list[list[TrainingMolecule]]:
        """Return for each molecule the most similar training molecules with their labels.

        Similarity is that of :meth:`training_similarity`. Training molecules are kept on request,
        by ``keep_training_molecules`` of :func:`molattn.train`.

        Args:
            smiles: The molecules, or their fingerprints.
            count: Most training molecules of each.

        Raises:
            InputError: A model that keeps no training molecules, or a count below 1.
        """
        kept = self.training_set and self.training_set.molecules
        if not kept:
            raise InputError(
                "the model keeps no training molecules; train with --keep-training-molecules"
            )
        if count < 1:
            raise InputError(f"count: got {count}, expected a whole number of at least 1")
        known, tasks = self._calibrated().molecules, self.module.config.tasks
        return kept.nearest(self._fingerprints(smiles), count, known, tasks)

    def neighbors(
        self,
        smiles: Sequence[Molecule],
        count: int = 5,
        batch_size: int = 256,
        *,
        partners: Optional[Sequence[Molecule]] = None,
        features: Optional[ArrayLike] = None,
    ) -> dict[str, list[list[Neighbor]]]:
        """Return for each molecule the training rows that contribute most to its predictions.

        Contributions to a task are on its transformed scale, largest absolute value first. Those of
        all inducing points, together with a constant, add up to the part of the prediction that the
        Gaussian process has; for a classification see
        :meth:`molattn.model.gaussian_process.head.GaussianProcessHead.neighbors`.

        Returns:
            For each task, by name, ``count`` training rows of each of the n molecules.

        Raises:
            InputError: A model without a Gaussian process, or a count below 1 or above the number
                of its inducing points.
        """
        self.check_neighbors(count)
        records = self._records(smiles, partners)
        _, inputs = self.module.network_outputs(records, batch_size, features=features)
        return self.neighbors_of_inputs(inputs, count)

    def neighbors_of_inputs(self, inputs: KernelInputs, count: int) -> dict[str, Any]:
        """Do the same, of what :meth:`molattn.MolAttn.network_outputs` returned."""
        process = self.check_neighbors(count)
        kept = self.training_set and self.training_set.molecules
        smiles = dict(zip(kept.rows.tolist(), kept.smiles, strict=True)) if kept else {}
        tasks, scales = self.module.config.tasks, self.module.target_scale.tolist()
        return {
            task.name: [
                [
                    one._replace(contribution=one.contribution * scale, smiles=smiles.get(one.row))
                    for one in row
                ]
                for row in found
            ]
            for task, scale, found in zip(
                tasks, scales, process.neighbors(inputs, count), strict=True
            )
        }

    def check_neighbors(self, count: int, name: str = "count") -> GaussianProcessHead:
        """Return the Gaussian process, if it has so many neighbors; errors call the count ``name``.

        Raises:
            InputError: As :meth:`neighbors`.
        """
        if self.process is None:
            raise InputError(
                f"{name}: the model has no Gaussian process, so that it has no neighbors"
            )
        most = len(self.process.rows)
        if not isinstance(count, (int, np.integer)) or not 1 <= count <= most:
            raise InputError(
                f"{name}: got {quoted(count)}, expected a whole number from 1 to {most}, the "
                "number of inducing points of the Gaussian process"
            )
        return self.process

    def embed(
        self,
        smiles: Sequence[Molecule],
        batch_size: int = 256,
        *,
        partners: Optional[Sequence[Molecule]] = None,
        atoms: bool = False,
    ) -> NDArray[np.float32]:
        """Return the learned embeddings of molecules, ``[n, width]``.

        An embedding is the output of the readout or, of a model that was pretrained on columns
        (``molattn pretrain --pretraining-columns``), a linear function of it. That of a second
        molecule follows.

        Extra molecule features are not part of them. An ensemble returns the members' vectors
        concatenated, not their mean: each member has learned coordinates of its own.

        With ``atoms`` it returns the vectors of the atoms before the readout instead, molecule
        after molecule, ``[total number of atoms, width]``, without those of second molecules.

        Example:
            >>> from molattn import MolAttn, MolAttnConfig
            >>> model = MolAttn(MolAttnConfig(tasks=("logS",)))
            >>> model.embed(["CCO", "C"]).shape, model.embed(["CCO", "C"], atoms=True).shape
            ((2, 256), (4, 128))
        """
        records = self.module.reader(partners).all(smiles, partners)
        return self.module.embed_records(records, batch_size, atoms=atoms)

    def calibrated(
        self,
        smiles: Sequence[Molecule],
        targets: ArrayLike,
        training_smiles: Sequence[Molecule],
        **inputs: Any,
    ) -> Uncertainty:
        """Fit prediction intervals and calibrate probabilities.

        Args:
            smiles: n molecules that the model was not trained on.
            targets: Their labels ``[n, num_tasks]`` in original units or as class indices, NaN
                where missing.
            training_smiles: The molecules that it was trained on.
            inputs: Arguments of :meth:`predict` for the n molecules (``partners``, ``features``).

        Raises:
            InputError: No training molecule; a label that is infinite, no class of the target, or
                0 or below if the model learned logarithms.
            ValueError: Targets of another shape.
        """
        labels, config = np.asarray(targets, dtype=np.float64), self.module.config
        if labels.shape != (expected := (len(smiles), len(config.tasks))):
            raise ValueError(f"targets: got {labels.shape}, expected {expected}")
        for task, transform, column in zip(
            config.tasks, config.target_transforms, labels.T, strict=True
        ):
            fits = (
                np.isin(column, range(len(task.classes))) if task.classes else np.isfinite(column)
            )
            if transform.kind == "log":
                fits &= column > 0.0
            if bad := column[~fits & ~np.isnan(column)].tolist():
                raise InputError(
                    f"targets: got {bad[0]:g}, which is no label of {quoted(task.name)}"
                )
        outputs, held_out = self._outputs_and_fingerprints(smiles, **inputs)
        molecules = FingerprintIndex.from_fingerprints(self._fingerprints(training_smiles))
        return Uncertainty.fit(config, molecules, held_out, outputs, labels)

    def _calibrated(self) -> Uncertainty:
        if self.uncertainty is None:
            raise InputError("the model is not calibrated; call MolAttn.calibrate first")
        return self.uncertainty

    def _fingerprints(self, smiles: Sequence[Molecule | Fingerprint]) -> list[Fingerprint]:
        return read_fingerprints(smiles, standardize=self.module.config.standardize)

    def _records(
        self,
        smiles: Sequence[Molecule],
        partners: Optional[Sequence[Molecule]],
        *,
        fingerprints: bool = False,
    ) -> list[MoleculeRecord]:
        reader = self.module.reader(partners, numbers=True, fingerprint=fingerprints)
        return reader.all(smiles, partners)

    def _outputs_and_fingerprints(
        self,
        smiles: Sequence[Molecule],
        batch_size: int = 256,
        *,
        partners: Optional[Sequence[Molecule]] = None,
        features: Optional[ArrayLike] = None,
    ) -> tuple[Array, Sequence[Fingerprint]]:
        records = self._records(smiles, partners, fingerprints=True)
        outputs = self.predict_outputs(records, batch_size, features=features)
        return outputs, [record.fingerprint for record in records]  # pyright: ignore
