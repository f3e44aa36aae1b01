"""Data whose rule is known, and so the atoms that a method should find."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rdkit import Chem
from sklearn.metrics import roc_auc_score

from molattn.chem import parse_smiles
from molattn.data.table import bundled_dataset, open_table
from molattn.errors import InputError, quoted
from molattn.explain.explainer import find_average, read_instances
from molattn.explain.faithfulness.bootstrap import Estimate, mean_of_molecules
from molattn.explain.instance import Instance
from molattn.explain.methods.base import MethodOptions
from molattn.explain.methods.registry import METHODS, find_method
from molattn.model.model import MolAttn

__all__ = [
    "RULES",
    "MethodDiscovery",
    "Planted",
    "discovery",
    "plant",
    "score_atoms",
]

RULES: dict[str, str] = {
    "hydroxyls": "[OX2H]",
    "carbonyls": "[CX3]=[OX1]",
    "amides": "[NX3][CX3]=[OX1]",
    "carboxylic_acids": "[CX3](=[OX1])[OX2H]",
    "ethers": "[CX4,c][OX2;!$(O*=O)][CX4,c]",
    "nitro_groups": "[NX3+](=[OX1])[O-]",
    "halogens": "[F,Cl,Br,I]",
}
"""SMARTS of functional groups that can be counted."""


@dataclass(frozen=True, eq=False)
class Planted:
    """Molecules whose property is the number of some group in them.

    Args:
        name: What the property is called.
        smarts: The group.
        smiles: n molecules.
        counts: Number of groups in each, ``float64 [n]``.
        atoms: For each which of its atoms are in such a group, ``bool``.
        parts: Part of the split each is in, ``train`` or ``test``.
    """

    name: str
    smarts: str
    smiles: tuple[str, ...]
    counts: NDArray[np.float64]
    atoms: tuple[NDArray[np.bool_], ...]
    parts: tuple[str, ...]

    def only(self, part: str) -> "Planted":
        """Return the molecules of one part."""
        rows = [row for row, own in enumerate(self.parts) if own == part]
        return replace(
            self,
            smiles=tuple(self.smiles[row] for row in rows),
            counts=self.counts[rows],
            atoms=tuple(self.atoms[row] for row in rows),
            parts=tuple(self.parts[row] for row in rows),
        )

    def save(self, path: str | Path) -> None:
        """Write a table to train on: columns smiles, the property, split and known_atoms."""
        known = [" ".join(map(str, np.flatnonzero(atoms))) for atoms in self.atoms]
        columns = {
            "smiles": self.smiles,
            self.name: self.counts,
            "split": self.parts,
            "known_atoms": known,
        }
        pd.DataFrame(columns).to_csv(path, index=False)


def plant(rule: str, smiles: Optional[Sequence[str]] = None, seed: int = 0) -> Planted:
    """Make a data set whose property is the number of one functional group.

    Args:
        rule: A name of :data:`RULES`, or a SMARTS.
        smiles: The molecules, of which a fifth drawn at random are to test on; None = those of the
            bundled solubility set, with the split that it has.
        seed: Of that draw.

    Raises:
        InputError: A rule that is neither, or a group that every molecule has as often.
        SmilesError: A text that is not a molecule.

    Example:
        >>> planted = plant("hydroxyls", ["CCO", "CC", "OCCO"])
        >>> planted.counts.tolist(), planted.atoms[0].tolist()
        ([1.0, 0.0, 2.0], [False, False, True])
    """
    smarts = RULES.get(rule, rule)
    group = Chem.MolFromSmarts(smarts)
    if group is None or not group.GetNumAtoms():
        raise InputError(f"rule: got {quoted(rule)}, expected {', '.join(RULES)} or a SMARTS")
    if smiles is None:
        table = open_table(bundled_dataset())
        places = [table.column(name, name) for name in ("smiles", "split")]
        texts, parts = zip(*([row.cells[place] for place in places] for row in table), strict=True)
    else:
        texts = tuple(smiles)
        held_out = np.random.default_rng(seed).permutation(len(texts)) < len(texts) / 5
        parts = tuple("test" if out else "train" for out in held_out)
    counts, known = np.zeros(len(texts)), []
    for row, mol in enumerate(map(parse_smiles, texts)):
        matches = mol.GetSubstructMatches(group, maxMatches=10_000)
        counts[row] = len(matches)
        atoms = np.zeros(mol.GetNumAtoms(), dtype=bool)
        atoms[[atom for match in matches for atom in match]] = True
        known.append(atoms)
    if len({*counts.tolist()}) < 2:
        raise InputError(
            f"rule: every molecule has {quoted(rule)} as often as the others, expected a group "
            "that tells some apart"
        )
    return Planted(rule, smarts, texts, counts, tuple(known), parts)


@dataclass(frozen=True)
class MethodDiscovery:
    """How well a method tells the known atoms from the others.

    Args:
        method: The method; ``uniform`` gives every atom the same score, and so 0.5.
        auroc: Mean over molecules of the area under the ROC curve of the size of scores: 1 = every
            known atom before every other, 0.5 = as by chance.
        molecules: How many molecules have both kinds of atoms.
    """

    method: str
    auroc: Estimate
    molecules: int


def score_atoms(scores: NDArray[np.float64], known: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve of the size of scores; there must be both kinds."""
    # What differs in the last digits only is the same: the scores of equal atoms.
    size = np.abs(scores)
    rounded = np.round(size / max(size.max(), np.finfo(float).tiny), 6)
    return float(roc_auc_score(known, rounded))


def discovery(
    model: MolAttn,
    planted: Planted,
    methods: Sequence[str] = tuple(METHODS),
    progress: Callable[[], object] = lambda: None,
    **options: Any,
) -> tuple[MethodDiscovery, ...]:
    """Score methods by the known atoms of a data set that the model was trained on.

    Args:
        model: A model of the planted property.
        planted: Molecules; better not those it was trained on. Those that have no known atom, or no
            other, are left out.
        methods: Names of :data:`molattn.explain.METHODS`.
        progress: Called after each molecule.
        options: Of the methods, see :class:`molattn.explain.MethodOptions`.

    Raises:
        InputError: A model without such a task, a method that does not exist, or no molecule with
            both kinds of atoms.
    """
    for name in methods:
        find_method(name)
    rows = [row for row, atoms in enumerate(planted.atoms) if 0 < atoms.sum() < len(atoms)]
    if not rows:
        raise InputError(
            f"molecules: got {len(planted.smiles)}, and none with atoms of {quoted(planted.smarts)}"
            " and others, expected some"
        )
    instances: Sequence[Instance] = [
        *read_instances(
            model,
            [planted.smiles[row] for row in rows],
            target=planted.name,
            average=find_average(model, None),
        )
    ]
    chosen = MethodOptions(**options)
    found = np.zeros((len(methods), len(rows)))
    for place, (row, instance) in enumerate(zip(rows, instances, strict=True)):
        for number, name in enumerate(methods):
            scores = METHODS[name].compute(instance, chosen).atoms
            found[number, place] = score_atoms(scores, planted.atoms[row])
        progress()
    return tuple(
        MethodDiscovery(name, mean_of_molecules(values), len(rows))
        for name, values in zip(
            [*methods, "uniform"], [*found, np.full(len(rows), 0.5)], strict=True
        )
    )
