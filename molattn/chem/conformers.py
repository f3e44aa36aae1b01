"""Three-dimensional coordinates of molecules."""

import warnings
from dataclasses import dataclass
from typing import Literal, NamedTuple, Optional

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdDistGeom, rdForceFieldHelpers

from molattn.chem.parse import quiet
from molattn.errors import InputError, quoted

_ATTEMPTS = 20
_SECONDS = 10  # checked between attempts
_FRAGMENT_GAP = 4.0  # angstrom; about a van der Waals contact
_FORCE_FIELD_STEPS = 500


class ConformerWarning(UserWarning):
    """A molecule has no conformer: ETKDGv3 found none, or the molecule is too large."""


class Conformer(NamedTuple):
    """Coordinates in angstrom ``float64 [n, 3]``, in the order of the atoms, and their method.

    The method is ``given`` for the molecule's own coordinates, otherwise ``etkdg``.
    """

    coordinates: NDArray[np.float64]
    method: Literal["given", "etkdg"]


@dataclass(frozen=True)
class ConformerGenerator:
    """Generates conformers with ETKDGv3, minimized with MMFF94, or UFF where it lacks parameters.

    A molecule for which ETKDGv3 fails has none, with a :class:`ConformerWarning`. The conformer has
    no hydrogen atoms that the molecule does not have, and does not depend on how the SMILES is
    written. Fragments are placed side by side; distances between them are arbitrary.

    Args:
        seed: Random seed, from 0, which also decides about unspecified stereocenters.
        max_atoms: Largest number of atoms, hydrogens included, for which conformers are generated;
            the time grows with its cube.

    Source: Wang et al., J. Chem. Inf. Model. 2020, 60, 2044 (ETKDGv3).

    Example:
        >>> from molattn.chem import parse_smiles
        >>> conformer = ConformerGenerator(seed=1)(parse_smiles("CCO"))
        >>> conformer.coordinates.shape, conformer.method
        ((3, 3), 'etkdg')
    """

    seed: int = 0
    max_atoms: int = 500

    def __call__(self, mol: Chem.Mol) -> Optional[Conformer]:
        """Return a conformer of a sanitized molecule; its own, if it has one in three dimensions.

        None if ETKDGv3 finds none, or if the molecule has over ``max_atoms`` with its hydrogens.

        Raises:
            InputError: The molecule's own coordinates are not finite.
        """
        if mol.GetNumConformers() and mol.GetConformer().Is3D():
            points = _coordinates(mol)
            if not np.isfinite(points).all():
                raise InputError("coordinates: expected finite numbers, got others")
            return Conformer(points, "given")
        with quiet:
            canonical, order = _canonical(mol)
            full = Chem.AddHs(canonical)
            parameters = rdDistGeom.ETKDGv3()
            parameters.randomSeed = self.seed
            parameters.maxIterations = _ATTEMPTS
            parameters.timeout = _SECONDS
            if full.GetNumAtoms() <= self.max_atoms and _embed(full, parameters):
                points = _side_by_side(canonical, _coordinates(full))
                return Conformer(points[np.argsort(order)], "etkdg")
        reason = "no conformer was found"
        if full.GetNumAtoms() > self.max_atoms:
            reason = f"no conformer: it has {full.GetNumAtoms()} atoms (max_atoms={self.max_atoms})"
        name = quoted(Chem.MolToSmiles(mol))
        warnings.warn(f"{name}: {reason}", ConformerWarning, stacklevel=2)
        return None


def _canonical(mol: Chem.Mol) -> tuple[Chem.Mol, list[int]]:
    """Return the molecule in canonical order, and the order; as it is if RDKit cannot reread it."""
    plain = Chem.Mol(mol)
    plain.RemoveAllConformers()
    for atom in plain.GetAtoms():
        atom.SetAtomMapNum(0)
    parameters = Chem.SmilesParserParams()
    parameters.removeHs = False
    rebuilt = Chem.MolFromSmiles(Chem.MolToSmiles(plain), parameters)
    if rebuilt is None or rebuilt.GetNumAtoms() != plain.GetNumAtoms():
        return plain, list(range(plain.GetNumAtoms()))
    order = plain.GetPropsAsDict(includePrivate=True, includeComputed=True)
    return rebuilt, list(order["_smilesAtomOutputOrder"])


def _embed(mol: Chem.Mol, parameters: rdDistGeom.EmbedParameters) -> bool:
    """Give a molecule coordinates of minimal energy; return whether there are any."""
    try:
        if rdDistGeom.EmbedMolecule(mol, parameters) != 0:
            return False
        if rdForceFieldHelpers.MMFFHasAllMoleculeParams(mol):
            rdForceFieldHelpers.MMFFOptimizeMolecule(mol, maxIters=_FORCE_FIELD_STEPS)
        elif rdForceFieldHelpers.UFFHasAllMoleculeParams(mol):
            rdForceFieldHelpers.UFFOptimizeMolecule(mol, maxIters=_FORCE_FIELD_STEPS)
    except (RuntimeError, ValueError):  # RDKit's own checks fail on some odd atoms
        return False
    return bool(np.isfinite(_coordinates(mol)).all())


def _side_by_side(mol: Chem.Mol, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Separate the fragments, which are all embedded around the origin, along the first axis."""
    moved = points[: mol.GetNumAtoms()].copy()
    end = -_FRAGMENT_GAP
    fragments = Chem.GetMolFrags(mol)
    for fragment in map(list, fragments if len(fragments) > 1 else ()):
        moved[fragment, 0] += end + _FRAGMENT_GAP - points[fragment, 0].min()
        end = moved[fragment, 0].max()
    return moved


def _coordinates(mol: Chem.Mol) -> NDArray[np.float64]:
    return np.array(mol.GetConformer().GetPositions(), dtype=np.float64).reshape(-1, 3)
