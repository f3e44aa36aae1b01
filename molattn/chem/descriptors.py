"""Numbers of a whole molecule: RDKit's 2-D descriptors and Morgan counts."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase
from rdkit.Chem import Descriptors, rdFingerprintGenerator

from molattn.chem.parse import parse_smiles
from molattn.chem.rdkit_log import quiet
from molattn.errors import InputError, quoted

__all__ = ["DESCRIPTORS", "DescriptorCalculator", "descriptor_matrix"]

_RADIUS = 2
# Coefficients of a characteristic polynomial: Ipc grows beyond all bounds with the molecule, and
# both take time with about the fourth power of its size, over ten seconds at 400 atoms.
_LEFT_OUT = ("Ipc", "AvgIpc")
_FUNCTIONS: dict[str, Callable[[Chem.Mol], Any]] = {
    name: function for name, function in Descriptors.descList if name not in _LEFT_OUT
}
DESCRIPTORS = tuple(_FUNCTIONS)
"""Names of RDKit's 2-D descriptors, but for the information content Ipc and its mean AvgIpc."""


@dataclass(frozen=True)
class DescriptorCalculator:
    """Calculates numbers of a molecule.

    Args:
        descriptors: Names of RDKit's 2-D descriptors, of ``DESCRIPTORS``.
        morgan_counts: Length of the Morgan fingerprint; 0 = none. An entry is ``log(1 + count)`` of
            the atom environments of radius 0 to 2 that are folded into it (Rogers and Hahn, J.
            Chem. Inf. Model. 2010, 50, 742).

    Raises:
        InputError: A descriptor that this RDKit does not have.

    Example:
        >>> DescriptorCalculator(("HeavyAtomCount", "RingCount"))(parse_smiles("c1ccccc1C"))
        array([7., 1.], dtype=float32)
    """

    descriptors: tuple[str, ...] = ()
    morgan_counts: int = 0

    def __post_init__(self) -> None:
        for name in self.descriptors:
            if name not in _FUNCTIONS:
                raise InputError(
                    f"descriptors: RDKit {rdBase.rdkitVersion} has no {quoted(name)}, expected an "
                    "RDKit that has it, such as the one it was first used with"
                )

    def __len__(self) -> int:
        return len(self.descriptors) + self.morgan_counts

    def __call__(self, mol: Chem.Mol) -> NDArray[np.float32]:
        """Return the numbers, ``[len(self)]``, descriptors first; NaN where one is undefined.

        Args:
            mol: A sanitised molecule.
        """
        values = np.empty(len(self))
        # RDKit complains of what it cannot calculate, and so does NumPy.
        with quiet, np.errstate(all="ignore"):
            if self.descriptors:
                mol = Chem.Mol(mol)
                # Some descriptors count the stereocentres that are not specified.
                Chem.AssignStereochemistry(
                    mol, cleanIt=True, force=True, flagPossibleStereoCenters=True
                )
            for place, name in enumerate(self.descriptors):
                values[place] = _value(_FUNCTIONS[name], mol)
            if self._generator is not None:
                counts = self._generator.GetCountFingerprintAsNumPy(mol)
                values[len(self.descriptors) :] = np.log1p(counts)
            numbers = values.astype(np.float32)
        numbers[~np.isfinite(numbers)] = np.nan
        return numbers

    @cached_property
    def _generator(self) -> Any:
        if not self.morgan_counts:
            return None
        return rdFingerprintGenerator.GetMorganGenerator(radius=_RADIUS, fpSize=self.morgan_counts)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out RDKit's generator, which cannot be copied; it is made again."""
        return {"descriptors": self.descriptors, "morgan_counts": self.morgan_counts}


def descriptor_matrix(
    smiles: Iterable[str], calculator: DescriptorCalculator
) -> NDArray[np.float32]:
    """Return the numbers of many molecules; each text is read once.

    Args:
        smiles: n molecules.
        calculator: What to calculate.

    Returns:
        ``[n, len(calculator)]``, NaN where one is undefined.

    Raises:
        SmilesError: A text that is not a molecule.
    """
    texts = list(smiles)
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    rows = np.empty((len(places), len(calculator)), dtype=np.float32)
    for text, place in places.items():
        rows[place] = calculator(parse_smiles(text))
    return rows[[places[text] for text in texts]]


def _value(function: Callable[[Chem.Mol], Any], mol: Chem.Mol) -> float:
    try:
        return function(mol)
    except Exception:  # whatever a descriptor's own code does with an odd molecule
        return np.nan
