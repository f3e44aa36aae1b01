"""Three-dimensional coordinates of molecules."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdDepictor, rdDistGeom, rdForceFieldHelpers

from molattn.chem.parse import quiet
from molattn.errors import InputError, quoted

__all__ = ["Conformer", "ConformerGenerator", "ConformerWarning"]

Method = Literal["given", "etkdg", "etkdg_random", "distance_geometry", "depiction"]

_FRAGMENT_GAP = 4.0  # angstrom; about a van der Waals contact
_FORCE_FIELD_STEPS = 500
_FORCE_FIELDS: tuple[tuple[Callable[..., bool], Callable[..., int]], ...] = (
    (rdForceFieldHelpers.MMFFHasAllMoleculeParams, rdForceFieldHelpers.MMFFOptimizeMolecule),
    (rdForceFieldHelpers.UFFHasAllMoleculeParams, rdForceFieldHelpers.UFFOptimizeMolecule),
)


class ConformerWarning(UserWarning):
    """No three-dimensional coordinates were found; the molecule has those of its 2D depiction."""


@dataclass(frozen=True, eq=False)
class Conformer:
    """Coordinates of a molecule's atoms, and how they were generated.

    Args:
        coordinates: Coordinates in angstrom, ``float64 [n, 3]``, in the order of the atoms.
        method: ``given`` (the molecule's own), ``etkdg``, ``etkdg_random`` (ETKDG from random
            coordinates), ``distance_geometry`` (from random coordinates, without torsion
            preferences and basic knowledge), or ``depiction`` (two-dimensional).
    """

    coordinates: NDArray[np.float64]
    method: Method


@dataclass(frozen=True)
class ConformerGenerator:
    """Generates conformers with ETKDGv3, minimized with MMFF94, or UFF where it lacks parameters.

    If ETKDGv3 fails, it is repeated from random coordinates, then with distance geometry only; if
    that fails too, the coordinates are those of the 2D depiction, with a
    :class:`ConformerWarning`. Implicit hydrogen atoms are added for the calculation and removed
    afterwards.

    The atoms are brought into canonical order first, so that the conformer does not depend on how
    the SMILES is written. Unspecified stereocenters get a configuration that depends on the seed.
    Fragments are placed side by side; distances between fragments are arbitrary.

    Args:
        seed: Random seed, from 0.
        attempts: Maximum number of attempts for each of the three methods.
        seconds: Time limit of each method, checked between attempts; a safeguard, since the result
            then depends on the machine.
        max_atoms: Largest number of atoms, hydrogens included, for which conformers are generated;
            the time grows with its cube.

    Source: Wang et al., J. Chem. Inf. Model. 2020, 60, 2044 (ETKDGv3).

    Example:
        >>> from molattn.chem import parse_smiles
        >>> found = ConformerGenerator(seed=1)(parse_smiles("CCO"))
        >>> found.coordinates.shape, found.method
        ((3, 3), 'etkdg')
    """

    seed: int = 0
    attempts: int = 20
    seconds: int = 10
    max_atoms: int = 500

    def __call__(self, mol: Chem.Mol) -> Conformer:
        """Return a conformer of a sanitized molecule.

        Args:
            mol: The molecule. Its own three-dimensional coordinates, if any, are returned
                unchanged.

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
            points, method = self._generate(canonical)
        if method == "depiction":
            warnings.warn(
                f"{quoted(Chem.MolToSmiles(mol))}: flat coordinates: no conformer was found",
                ConformerWarning,
                stacklevel=2,
            )
        coordinates = np.empty_like(points)
        coordinates[order] = points
        return Conformer(coordinates, method)

    def _generate(self, mol: Chem.Mol) -> tuple[NDArray[np.float64], Method]:
        full = Chem.AddHs(mol)
        if full.GetNumAtoms() <= self.max_atoms:
            for method, parameters in self._methods():
                if _embed(full, parameters):
                    _minimize(full)
                    points = _coordinates(full)[: mol.GetNumAtoms()]
                    return _side_by_side(mol, points), method
        rdDepictor.Compute2DCoords(mol)
        return _coordinates(mol), "depiction"

    def _methods(self) -> Iterator[tuple[Method, rdDistGeom.EmbedParameters]]:
        methods: tuple[Method, ...] = ("etkdg", "etkdg_random", "distance_geometry")
        for method in methods:
            parameters = rdDistGeom.ETKDGv3()
            parameters.randomSeed = self.seed
            parameters.maxIterations = self.attempts
            parameters.timeout = self.seconds
            parameters.useRandomCoords = method != "etkdg"
            if method == "distance_geometry":
                parameters.useBasicKnowledge = False
                parameters.useExpTorsionAnglePrefs = False
            yield method, parameters


def _canonical(mol: Chem.Mol) -> tuple[Chem.Mol, list[int]]:
    """Return the molecule in canonical order, and the order of the atoms.

    If RDKit cannot read its own SMILES, the molecule is returned as it is.
    """
    plain = Chem.Mol(mol)
    plain.RemoveAllConformers()
    for atom in plain.GetAtoms():
        atom.SetAtomMapNum(0)
    text = Chem.MolToSmiles(plain)
    parameters = Chem.SmilesParserParams()
    parameters.removeHs = False
    rebuilt = Chem.MolFromSmiles(text, parameters)
    if rebuilt is None or rebuilt.GetNumAtoms() != plain.GetNumAtoms():
        return plain, list(range(plain.GetNumAtoms()))
    order = plain.GetPropsAsDict(includePrivate=True, includeComputed=True)
    return rebuilt, list(order["_smilesAtomOutputOrder"])


def _embed(mol: Chem.Mol, parameters: rdDistGeom.EmbedParameters) -> bool:
    try:
        found = rdDistGeom.EmbedMolecule(mol, parameters) == 0
    except (RuntimeError, ValueError):  # RDKit's own checks fail on some odd atoms.
        return False
    return found and bool(np.isfinite(_coordinates(mol)).all())


def _minimize(mol: Chem.Mol) -> None:
    """Minimize the energy; leave the molecule as it is if no force field can."""
    before = _coordinates(mol)
    try:
        minimize = next(minimize for suits, minimize in _FORCE_FIELDS if suits(mol))
        done = minimize(mol, maxIters=_FORCE_FIELD_STEPS) >= 0
    except (RuntimeError, ValueError, StopIteration):  # as above, or none has its parameters
        done = False
    if not done or not np.isfinite(_coordinates(mol)).all():
        mol.GetConformer().SetPositions(before)


def _side_by_side(mol: Chem.Mol, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Separate the fragments, which are all embedded around the origin, along the first axis."""
    placed = points.copy()
    end = -_FRAGMENT_GAP
    fragments = Chem.GetMolFrags(mol)
    for fragment in map(list, fragments if len(fragments) > 1 else ()):
        placed[fragment, 0] += end + _FRAGMENT_GAP - points[fragment, 0].min()
        end = placed[fragment, 0].max()
    return placed


def _coordinates(mol: Chem.Mol) -> NDArray[np.float64]:
    return np.array(mol.GetConformer().GetPositions(), dtype=np.float64).reshape(-1, 3)
