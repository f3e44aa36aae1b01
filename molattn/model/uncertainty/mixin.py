"""How a model speaks of its own errors."""

from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
from numpy.typing import ArrayLike, NDArray

from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.errors import InputError
from molattn.model.config import MolAttnConfig
from molattn.model.uncertainty.model_uncertainty import Uncertainty
from molattn.model.uncertainty.prediction import assemble_prediction
from molattn.task import output_slices

__all__ = ["Calibrated"]


class Calibrated:
    """A model that learns how large its errors are from molecules that did not train it.

    For a class with ``config`` and ``predict``.
    """

    config: MolAttnConfig
    uncertainty: Optional[Uncertainty] = None

    def predict(
        self, smiles: Sequence[str], batch_size: int = 64, **inputs: Any
    ) -> NDArray[np.float64]:
        """Predict SMILES; with ``members=True`` by each member, uncalibrated."""
        raise NotImplementedError

    def calibrate(
        self,
        smiles: Sequence[str],
        targets: ArrayLike,
        training_smiles: Sequence[str],
        **inputs: Any,
    ) -> None:
        """Learn how large errors are and how far to trust probabilities, as training does itself.

        Args:
            smiles: n molecules that did not train the weights.
            targets: Their labels ``[n, num_tasks]`` in original units or as places of classes, NaN
                where missing.
            training_smiles: The molecules that did.
            inputs: What ``predict`` takes of the n molecules besides (``partners``, ``features``).

        Raises:
            SmilesError: A text that is not a molecule.
            InputError: No training molecule.
            ValueError: Targets of another shape.
        """
        labels = np.asarray(targets, dtype=np.float64)
        if labels.shape != (expected := (len(smiles), len(self.config.tasks))):
            raise ValueError(f"targets: got {labels.shape}, expected {expected}")
        prediction = self.predict(smiles, members=True, **inputs).mean(axis=0)
        molecules = FingerprintIndex.from_smiles(training_smiles)
        self.uncertainty = Uncertainty.fit(self.config.tasks, molecules, smiles, prediction, labels)

    def predict_interval(
        self, smiles: Sequence[str], level: float = 0.9, batch_size: int = 64, **inputs: Any
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Predict between which values a label lies with a probability, for regressions.

        An interval is the prediction plus and minus a width, which grows with the distance from the
        training molecules; see :mod:`molattn.model.uncertainty.calibration`.

        Args:
            smiles: n molecules.
            level: The probability, between 0 and 1.
            batch_size: How many of them at once.
            inputs: What ``predict`` takes besides (``partners``, ``features``).

        Returns:
            Lower and upper ends, ``[n, num_tasks]`` each, in the targets' own units; infinite where
            a task had too few labels for the level, NaN for classifications.

        Raises:
            InputError: Another level, or a model that has not been calibrated.
            SmilesError: A text that is not a molecule.
        """
        self._known()
        members = self.predict(smiles, batch_size, members=True, **inputs)
        tasks = self.config.tasks
        said = assemble_prediction(tasks, self.uncertainty, members, smiles, level)
        middle = said.prediction[:, [part.start for part in output_slices(tasks)]]
        return middle - said.half_width, middle + said.half_width

    def training_similarity(self, smiles: Sequence[str]) -> NDArray[np.float64]:
        """Return the Tanimoto similarity of each molecule to the nearest of the training, ``[n]``.

        Of Morgan fingerprints of radius 2 and 2,048 bits; a second molecule has no part in it. What
        is like nothing that a model was trained on is predicted worse.

        Raises:
            InputError: A model that has not been calibrated.
            SmilesError: A text that is not a molecule.
        """
        return self._known().molecules.similarity(smiles)

    def _calibrated_mean(self, members: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what is predicted of what each member predicts, ``[members, n, outputs]``."""
        mean = members.mean(axis=0)
        return mean if self.uncertainty is None else self.uncertainty.calibration.calibrated(mean)

    def _known(self) -> Uncertainty:
        if self.uncertainty is None:
            raise InputError("the model has not been calibrated: MolAttn.calibrate does so")
        return self.uncertainty
