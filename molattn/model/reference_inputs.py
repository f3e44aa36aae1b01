"""The inputs that a model was trained with, of a few molecules, to compare with those of today.

Another version of RDKit may calculate other descriptors, or perceive aromatic rings otherwise. A
saved model has the versions it was trained with and what was calculated for
:data:`REFERENCE_MOLECULES`, so that it is noticed when predictions are not made from such inputs.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from molattn.chem.reader import Fields, MoleculeReader
from molattn.config.base import checked
from molattn.errors import SmilesError
from molattn.model.config import MolAttnConfig
from molattn.record import MoleculeRecord

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

_TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}  # of descriptors that are the same
_PACKAGES = ("molattn", "rdkit")


@checked
class ReferenceInputs:
    """What a model reads of some molecules, and versions of the packages that calculated it.

    For each molecule its SMILES, a SHA-256 of each kind of input, and the values of descriptors.
    """

    versions: dict[str, str]
    molecules: list[dict[str, Any]]

    @classmethod
    def of(
        cls, config: MolAttnConfig, smiles: Sequence[str] = REFERENCE_MOLECULES
    ) -> "ReferenceInputs":
        """Calculate the inputs of a model of this configuration."""
        fields = Fields(config.calculator, config.counter, fingerprint=True)
        options = {"standardize": config.standardize, "radius": config.network.radius}
        records = MoleculeReader(config.featurizer, fields, **options)(smiles)
        molecules = [
            {"smiles": text, **_inputs(record, len(config.descriptors))}
            for text, record in zip(smiles, records, strict=True)
        ]
        return cls({name: version(name) for name in _PACKAGES}, molecules)

    def remark(self, config: MolAttnConfig) -> str:
        """Return a line on whether the inputs are the same with the installed versions.

        If these are the versions of the training, it is empty and nothing is calculated.
        """
        changed = [name for name in _PACKAGES if self.versions[name] != version(name)]
        if not changed:
            return ""
        was = " and ".join(f"{name} {self.versions[name]}" for name in changed)
        have = " and ".join(f"{name} {version(name)}" for name in changed)
        now = self.of(config, [molecule["smiles"] for molecule in self.molecules]).molecules
        pairs = zip(self.molecules, now, strict=True)
        differences = [_differences(*pair) for pair in pairs]
        count, total = sum(map(bool, differences)), len(differences)
        trained = f"the model was trained with {was}, and {have} is installed"
        if not count:
            return f"{trained}: the inputs of {total} reference molecules are the same"
        kinds = ", ".join(dict.fromkeys(kind for kinds in differences for kind in kinds))
        return (
            f"{trained}: the inputs of {count} of {total} reference molecules differ ({kinds}), so "
            f"that predictions may differ too; with {was} they do not"
        )


def _inputs(record: MoleculeRecord | SmilesError, descriptors: int) -> dict[str, Any]:
    if isinstance(record, SmilesError):
        return {"error": record.code}
    inputs: dict[str, Any] = {
        "graph": _digest(record.atoms, record.pairs, record.edge_index),
        "fingerprint": _digest(record.fingerprint),
    }
    if record.counts is not None:
        inputs["counted substructures"] = _digest(*record.counts)
    if record.numbers is not None:
        inputs["Morgan counts"] = _digest(record.numbers[descriptors:])
        values = record.numbers[:descriptors].tolist()
        inputs["descriptors"] = [value if np.isfinite(value) else None for value in values]
    return inputs


def _digest(*arrays: NDArray[Any] | None) -> str:
    digest = sha256()
    for array in arrays:
        if array is not None:
            digest.update(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Name the inputs of a molecule that differ, of those that the model reads now."""
    return [name for name in sorted(new) if not _is_equal(old.get(name), new[name])]


def _is_equal(old: Any, new: Any) -> bool:
    if not isinstance(old, list) or len(old) != len(new):
        return old == new
    values = (np.array(one, dtype=np.float64) for one in (old, new))  # None is NaN
    return np.allclose(*values, **_TOLERANCE, equal_nan=True)
