"""The inputs that a model was trained with, of a few molecules, to compare with those of today.

Another version of RDKit may calculate other descriptors, or perceive aromatic rings otherwise. A
saved model has the versions it was trained with and what was calculated for
:data:`REFERENCE_MOLECULES`, so that it is noticed when predictions are not made from such inputs.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Optional

import numpy as np
from numpy.typing import NDArray

from molattn.chem.reader import Fields, MoleculeReader
from molattn.errors import InputError, SmilesError, quoted
from molattn.model.artefact import INPUTS_FILE, ModelFiles
from molattn.record import MoleculeRecord
from molattn.utils.console import counted

if TYPE_CHECKING:
    from molattn.model.config import MolAttnConfig

__all__ = ["REFERENCE_MOLECULES", "ReferenceInputs"]

REFERENCE_MOLECULES = (
    "CC(=O)Oc1ccccc1C(=O)O",
    "Cn1c(=O)c2c(ncn2C)n(C)c1=O",
    "CC1(C)S[C@@H]2[C@H](NC(=O)Cc3ccccc3)C(=O)N2[C@H]1C(=O)[O-].[Na+]",
    "C[C@]12CC[C@H]3[C@@H](CCC4=CC(=O)CC[C@@]43C)[C@@H]1CC[C@@H]2O",
    "C/C=C/C(=N\\O)c1cc2ccccc2[nH]1",
    "O=[N+]([O-])c1ccc(S(=O)(=O)NC2CC2)cc1C(F)(F)F",
    "CC(C)NCC(O)COc1cccc2ccccc12",
    "CP(=O)(OC)Oc1ncc(Br)cc1C#N",
    "Nc1ccn([C@@H]2O[C@H](CO)[C@@H](O)C2(F)F)c(=O)n1",
    "C[N+](C)(C)CCO",
    "c1ccc2c(c1)-c1cccc3cccc-2c13",
    "O=C1CCCCCCCCCCCCCCO1",
)
"""Molecules with charges, stereo labels, salts, fused, aromatic and large rings, and many elements.

They are never changed, only added to: a model compares those that it was saved with.
"""

_FEWEST_DIGITS = 1e-5  # descriptors that differ by less, relatively, are the same
_PACKAGES = ("molattn", "rdkit")


@dataclass(frozen=True, repr=False)
class ReferenceInputs:
    """What a model reads of some molecules.

    Args:
        versions: Versions of the packages that calculated it.
        molecules: SMILES of each molecule, and a SHA-256 of each kind of its input; under
            ``descriptors`` their values, None where one is undefined.
    """

    versions: dict[str, str]
    molecules: list[dict[str, Any]]

    @classmethod
    def of(
        cls, config: "MolAttnConfig", smiles: Sequence[str] = REFERENCE_MOLECULES
    ) -> "ReferenceInputs":
        """Calculate the inputs of a model of this configuration."""
        read = MoleculeReader(
            config.featurizer,
            Fields(config.calculator, config.counter, fingerprint=True),
            standardize=config.standardize,
            radius=config.network.radius,
        )
        found = []
        for text, record in zip(smiles, read(smiles), strict=True):
            inputs = _inputs(record, config)
            found.append({"smiles": text, **inputs})
        return cls({name: version(name) for name in _PACKAGES}, found)

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        return (json.dumps(vars(self), allow_nan=False) + "\n").encode()

    @classmethod
    def from_files(cls, files: ModelFiles) -> "Optional[ReferenceInputs]":
        """Read them of a saved model; None if it has none.

        Raises:
            InputError: The file is damaged.
        """
        if INPUTS_FILE not in files.content:
            return None
        found = files.parse(INPUTS_FILE, cls)
        if not found.versions.keys() >= {*_PACKAGES} or not all(
            isinstance(one.get("smiles"), str) for one in found.molecules
        ):
            path = files.folder / INPUTS_FILE
            raise InputError(f"{path}: not the versions and inputs of reference molecules")
        return found

    def remark(self, config: "MolAttnConfig") -> str:
        """Return a line on whether the inputs are the same with the installed versions.

        If these are the versions of the training, it is empty and nothing is calculated.
        """
        now = {name: version(name) for name in _PACKAGES}
        changed = [name for name in _PACKAGES if self.versions[name] != now[name]]
        if not changed:
            return ""
        was = " and ".join(f"{name} {self.versions[name]}" for name in changed)
        have = " and ".join(f"{name} {now[name]}" for name in changed)
        trained = f"the model was trained with {was}, and {have} is installed"
        latter = type(self).of(config, [one["smiles"] for one in self.molecules])
        kinds: dict[str, None] = {}
        others = 0
        for one, other in zip(self.molecules, latter.molecules, strict=True):
            differing = _differences(one, other, config.descriptors)
            kinds |= dict.fromkeys(differing)
            others += bool(differing)
        molecules = counted(len(self.molecules), "reference molecule")
        if not others:
            return f"{trained}: the inputs of {molecules} are the same"
        install = " ".join(f"{name}=={self.versions[name]}" for name in changed)
        return (
            f"{trained}: the inputs of {others} of {molecules} differ ({', '.join(kinds)}), so "
            f"that predictions may differ too; with {install} they do not"
        )


def _inputs(record: "MoleculeRecord | SmilesError", config: "MolAttnConfig") -> dict[str, Any]:
    if isinstance(record, SmilesError):
        return {"error": record.code}
    inputs: dict[str, Any] = {
        "graph": _digest(record.atoms, record.pairs, record.edge_index),
        "fingerprint": _digest(record.fingerprint),
    }
    if record.counts is not None:
        inputs["counted substructures"] = _digest(*record.counts)
    if record.numbers is not None:
        count = len(config.descriptors)
        inputs["Morgan counts"] = _digest(record.numbers[count:])
        values = record.numbers[:count].tolist()
        inputs["descriptors"] = [value if np.isfinite(value) else None for value in values]
    return inputs


def _digest(*arrays: Optional[NDArray[Any]]) -> str:
    digest = sha256()
    for array in arrays:
        if array is not None:
            digest.update(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _differences(
    one: Mapping[str, Any], other: Mapping[str, Any], descriptors: Sequence[str]
) -> list[str]:
    """Name the inputs of a molecule that differ, of those that the model reads now."""
    found = [
        f"descriptor {quoted(name)}"
        for name, was, now in zip(
            descriptors, one.get("descriptors", ()), other.get("descriptors", ()), strict=False
        )
        if not _is_same(was, now)
    ]
    names = (other.keys() | (one.keys() & {"error"})) - {"smiles", "descriptors"}
    return [*sorted(name for name in names if one.get(name) != other.get(name)), *found]


def _is_same(one: Optional[float], other: Optional[float]) -> bool:
    values = np.array([one, other], dtype=np.float64)  # None is NaN
    return bool(np.isclose(*values, rtol=_FEWEST_DIGITS, atol=_FEWEST_DIGITS, equal_nan=True))
