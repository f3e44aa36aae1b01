"""Three-dimensional coordinates of molecules, and a cache of them on disk."""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase
from rdkit.Chem import rdDepictor, rdDistGeom, rdForceFieldHelpers

from molattn.chem.rdkit_log import quiet
from molattn.errors import InputError, quoted
from molattn.utils.files import write_file

__all__ = ["Conformer", "ConformerGenerator", "ConformerWarning", "conformer"]

Method = Literal["given", "etkdg", "etkdg_random", "distance_geometry", "depiction"]
ForceField = Literal["MMFF94", "UFF"]

_CACHE_FORMAT = 1
_FRAGMENT_GAP = 4.0  # angstrom; about a van der Waals contact
_FORCE_FIELD_STEPS = 500
_FAILURES = {int(value): name for name, value in rdDistGeom.EmbedFailureCauses.names.items()}
_TIMEOUT = int(rdDistGeom.EmbedFailureCauses.EXCEEDED_TIMEOUT)
_FORCE_FIELDS: tuple[tuple[ForceField, Callable[..., bool], Callable[..., int]], ...] = (
    (
        "MMFF94",
        rdForceFieldHelpers.MMFFHasAllMoleculeParams,
        rdForceFieldHelpers.MMFFOptimizeMolecule,
    ),
    ("UFF", rdForceFieldHelpers.UFFHasAllMoleculeParams, rdForceFieldHelpers.UFFOptimizeMolecule),
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
        force_field: Force field of the minimization, ``MMFF94`` or ``UFF``; None if there was none.
        converged: Whether the minimization converged; False without a force field.
        problems: Messages of the steps that failed.
    """

    coordinates: NDArray[np.float64]
    method: Method
    force_field: ForceField | None = None
    converged: bool = False
    problems: tuple[str, ...] = ()

    @property
    def is_3d(self) -> bool:
        """Whether the coordinates are three-dimensional."""
        return self.method != "depiction"


@dataclass(frozen=True)
class ConformerGenerator:
    """Generates conformers with ETKDGv3, minimized with MMFF94, or UFF where it lacks parameters.

    If ETKDGv3 fails, it is repeated from random coordinates, then with distance geometry only; if
    that fails too, the coordinates are those of the 2D depiction, with a
    :class:`ConformerWarning`. ``Conformer.problems`` lists what failed. Implicit hydrogen atoms are
    added for the calculation and removed afterwards.

    The atoms are brought into canonical order first, so that the conformer does not depend on how
    the SMILES is written. Unspecified stereocenters get a configuration that depends on the seed.
    Fragments are placed side by side; distances between fragments are arbitrary.

    Args:
        seed: Random seed, from 0.
        attempts: Maximum number of attempts for each of the three methods.
        seconds: Time limit of each method, checked between attempts; a safeguard, since the result
            then depends on the machine. Such a result is not cached.
        max_atoms: Largest number of atoms, hydrogens included, for which conformers are generated;
            the time grows with its cube.
        cache: Folder to cache conformers in, safe for several processes at once; None for no cache.

    Raises:
        InputError: An option out of range.

    Source: Wang et al., J. Chem. Inf. Model. 2020, 60, 2044 (ETKDGv3).

    Example:
        >>> from molattn.chem import parse_smiles
        >>> found = ConformerGenerator(seed=1)(parse_smiles("CCO"))
        >>> found.coordinates.shape, found.method, found.force_field
        ((3, 3), 'etkdg', 'MMFF94')
    """

    seed: int = 0
    attempts: int = 20
    seconds: int = 10
    max_atoms: int = 500
    cache: str | Path | None = None

    def __post_init__(self) -> None:
        for name, least in {"seed": 0, "attempts": 1, "seconds": 1, "max_atoms": 1}.items():
            value = getattr(self, name)
            if type(value) is not int or not least <= value < 2**31:
                raise InputError(
                    f"{name}: got {value!r}, expected a whole number of at least {least}"
                )
        if self.cache is not None and Path(self.cache).exists() and not Path(self.cache).is_dir():
            raise InputError(f"cache {quoted(str(self.cache))}: got a file, expected a folder")

    def __call__(self, mol: Chem.Mol) -> Conformer:
        """Return a conformer of a sanitized molecule.

        Args:
            mol: The molecule. Its own three-dimensional coordinates, if any, are returned
                unchanged.

        Raises:
            InputError: The molecule's own coordinates are not finite, or the cache cannot be
                written.
        """
        if mol.GetNumConformers() and mol.GetConformer().Is3D():
            return Conformer(_coordinates(mol, finite=True), "given")
        if not mol.GetNumAtoms():
            return Conformer(np.zeros((0, 3)), "depiction")
        with quiet:
            found = self._find(mol)
        if not found.is_3d:
            warnings.warn(
                f"{quoted(Chem.MolToSmiles(mol))}: flat coordinates: {'; '.join(found.problems)}",
                ConformerWarning,
                stacklevel=2,
            )
        return found

    def _find(self, mol: Chem.Mol) -> Conformer:
        canonical, text, order = _canonical(mol)
        key = {"format": _CACHE_FORMAT, "rdkit": rdBase.rdkitVersion, "smiles": text}
        key |= {"seed": self.seed, "attempts": self.attempts, "max_atoms": self.max_atoms}
        folder = None if self.cache is None or text is None else Path(self.cache)
        found = None if folder is None else _read_cache(folder, key)
        if found is None:
            found, timed_out = self._generate(canonical)
            if folder is not None and not timed_out:
                _write_cache(folder, key, found)
        coordinates = np.empty_like(found.coordinates)
        coordinates[order] = found.coordinates
        return replace(found, coordinates=coordinates)

    def _generate(self, mol: Chem.Mol) -> tuple[Conformer, bool]:
        """Return a conformer, and whether a time limit was reached."""
        full = Chem.AddHs(mol)
        problems: list[str] = []
        timed_out = False
        if full.GetNumAtoms() > self.max_atoms:
            problems.append(
                f"it has {full.GetNumAtoms()} atoms with hydrogens, at most {self.max_atoms} "
                "are supported"
            )
        else:
            for method, parameters in self._methods():
                problem = _embed(full, parameters)
                timed_out |= parameters.GetFailureCounts()[_TIMEOUT] > 0
                if problem is None:
                    force_field, converged, problem = _minimize(full)
                    problems += [] if problem is None else [problem]
                    points = _side_by_side(mol, _coordinates(full)[: mol.GetNumAtoms()])
                    made = Conformer(points, method, force_field, converged, tuple(problems))
                    return made, timed_out
                problems.append(f"{method}: {problem}")
        rdDepictor.Compute2DCoords(mol)
        return Conformer(_coordinates(mol), "depiction", problems=tuple(problems)), timed_out

    def _methods(self) -> Iterator[tuple[Method, rdDistGeom.EmbedParameters]]:
        methods: tuple[Method, ...] = ("etkdg", "etkdg_random", "distance_geometry")
        for method in methods:
            parameters = rdDistGeom.ETKDGv3()
            parameters.randomSeed = self.seed
            parameters.maxIterations = self.attempts
            parameters.timeout = self.seconds
            parameters.trackFailures = True
            parameters.useRandomCoords = method != "etkdg"
            if method == "distance_geometry":
                parameters.useBasicKnowledge = False
                parameters.useExpTorsionAnglePrefs = False
            yield method, parameters


def conformer(mol: Chem.Mol, *, seed: int = 0, cache: str | Path | None = None) -> Conformer:
    """Return a conformer of a sanitized molecule; see :class:`ConformerGenerator`.

    Args:
        mol: The molecule. Its own three-dimensional coordinates, if any, are returned unchanged.
        seed: Random seed, from 0.
        cache: Folder to cache conformers in; None for no cache.

    Raises:
        InputError: An option out of range, coordinates of the molecule that are not finite, or a
            cache that cannot be written.
    """
    return ConformerGenerator(seed=seed, cache=cache)(mol)


def _canonical(mol: Chem.Mol) -> tuple[Chem.Mol, str | None, list[int]]:
    """Return the molecule in canonical order, its SMILES, and the order of the atoms.

    If RDKit cannot read its own SMILES, the molecule is returned as it is, without a SMILES.
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
        return plain, None, list(range(plain.GetNumAtoms()))
    order = plain.GetPropsAsDict(includePrivate=True, includeComputed=True)
    return rebuilt, text, list(order["_smilesAtomOutputOrder"])


def _embed(mol: Chem.Mol, parameters: rdDistGeom.EmbedParameters) -> str | None:
    """Embed the molecule; return why it failed, or None."""
    try:
        if rdDistGeom.EmbedMolecule(mol, parameters) == 0:
            if np.isfinite(_coordinates(mol)).all():
                return None
            return "coordinates that are not finite"
    except (RuntimeError, ValueError) as error:  # RDKit's own checks fail on some odd atoms.
        return _one_line(error)
    causes = enumerate(parameters.GetFailureCounts())
    counts = ", ".join(f"{_FAILURES[cause].lower()} {count}" for cause, count in causes if count)
    return f"no conformer in {parameters.maxIterations} attempts ({counts or 'no cause given'})"


def _minimize(mol: Chem.Mol) -> tuple[ForceField | None, bool, str | None]:
    """Minimize the energy; return the force field, whether it converged, and what failed."""
    before = _coordinates(mol)
    try:
        for force_field, suits, minimize in _FORCE_FIELDS:
            if suits(mol):
                left = minimize(mol, maxIters=_FORCE_FIELD_STEPS)
                if left >= 0 and np.isfinite(_coordinates(mol)).all():
                    return force_field, left == 0, None
                problem = f"{force_field}: no finite energy"
                break
        else:
            problem = "neither MMFF94 nor UFF has parameters for all atoms"
    except (RuntimeError, ValueError) as error:
        problem = f"force field: {_one_line(error)}"
    mol.GetConformer().SetPositions(before)
    return None, False, problem


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _side_by_side(mol: Chem.Mol, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Separate the fragments, which are all embedded around the origin, along the first axis."""
    fragments = Chem.GetMolFrags(mol)
    if len(fragments) == 1:
        return points
    placed = points.copy()
    end = -_FRAGMENT_GAP
    for fragment in map(list, fragments):
        placed[fragment, 0] += end + _FRAGMENT_GAP - points[fragment, 0].min()
        end = placed[fragment, 0].max()
    return placed


def _coordinates(mol: Chem.Mol, *, finite: bool = False) -> NDArray[np.float64]:
    points = np.array(mol.GetConformer().GetPositions(), dtype=np.float64).reshape(-1, 3)
    if finite and not np.isfinite(points).all():
        atom = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        raise InputError(
            f"coordinates: got {points[atom].tolist()} for atom {atom}, expected finite numbers"
        )
    return points


def _read_cache(folder: Path, key: Mapping[str, Any]) -> Conformer | None:
    """Return the conformer that was cached under a key; None if there is none or it is damaged."""
    try:
        digest, _, content = _cache_file(folder, key).read_bytes().partition(b"\n")
        if digest.decode() != hashlib.sha256(content).hexdigest():
            return None
        entry = json.loads(content)
        if entry["key"] != key:
            return None
        value = entry["value"]
        points = np.array(value["coordinates"], dtype=np.float64)
        return Conformer(**{**value, "coordinates": points, "problems": tuple(value["problems"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_cache(folder: Path, key: Mapping[str, Any], found: Conformer) -> None:
    value = {**vars(found), "coordinates": found.coordinates.tolist()}
    content = json.dumps({"key": key, "value": value}, allow_nan=False).encode()
    path = _cache_file(folder, key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
    except OSError as error:
        raise InputError(f"cache {str(folder)!r}: cannot be written: {error.strerror}") from error


def _cache_file(folder: Path, key: Mapping[str, Any]) -> Path:
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return folder / name[:2] / f"{name}.json"
