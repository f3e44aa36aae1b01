"""Synthetic data whose target counts a functional group, so that the relevant atoms are known."""

from collections.abc import Sequence
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
from molattn.explain.explainer import read_instances
from molattn.explain.faithfulness import Estimate, bootstrap_mean
from molattn.explain.methods import METHODS, MethodOptions
from molattn.model.model import MolAttn

__all__ = [
    "FUNCTIONAL_GROUPS",
    "GroundTruthScore",
    "SyntheticDataset",
    "atom_auroc",
    "ground_truth_auroc",
    "synthetic_dataset",
]

FUNCTIONAL_GROUPS: dict[str, str] = {
    "hydroxyls": "[OX2H]",
    "carbonyls": "[CX3]=[OX1]",
    "amides": "[NX3][CX3]=[OX1]",
    "carboxylic_acids": "[CX3](=[OX1])[OX2H]",
    "ethers": "[CX4,c][OX2;!$(O*=O)][CX4,c]",
    "nitro_groups": "[NX3+](=[OX1])[O-]",
    "halogens": "[F,Cl,Br,I]",
}
"""SMARTS of functional groups to count."""


@dataclass(frozen=True, eq=False)
class SyntheticDataset:
    """Molecules whose target is the number of times a functional group occurs in them.

    Args:
        name: Name of the target.
        smarts: The group.
        smiles: n molecules.
        targets: Number of groups in each, ``float64 [n]``.
        ground_truth: For each molecule, which of its atoms belong to such a group, ``bool``.
        splits: Split of each molecule, ``train`` or ``test``.
    """

    name: str
    smarts: str
    smiles: tuple[str, ...]
    targets: NDArray[np.float64]
    ground_truth: tuple[NDArray[np.bool_], ...]
    splits: tuple[str, ...]

    def subset(self, split: str) -> "SyntheticDataset":
        """Return the molecules of one split."""
        rows = [row for row, own in enumerate(self.splits) if own == split]
        return replace(
            self,
            smiles=tuple(self.smiles[row] for row in rows),
            targets=self.targets[rows],
            ground_truth=tuple(self.ground_truth[row] for row in rows),
            splits=tuple(self.splits[row] for row in rows),
        )

    def to_csv(self, path: str | Path) -> None:
        """Write a table to train on: columns smiles, the target, split and ground_truth_atoms."""
        atoms = [" ".join(map(str, np.flatnonzero(mask))) for mask in self.ground_truth]
        columns = {
            "smiles": self.smiles,
            self.name: self.targets,
            "split": self.splits,
            "ground_truth_atoms": atoms,
        }
        pd.DataFrame(columns).to_csv(path, index=False)


def synthetic_dataset(
    group: str, smiles: Optional[Sequence[str]] = None, seed: int = 0
) -> SyntheticDataset:
    """Make a dataset whose target is the number of times a functional group occurs.

    Args:
        group: A name in :data:`FUNCTIONAL_GROUPS`, or a SMARTS.
        smiles: The molecules, a random fifth of which become the test split; None = the bundled
            solubility set with its own split.
        seed: Seed of the split.

    Raises:
        InputError: A group that is neither, or that occurs equally often in every molecule.
        SmilesError: A text that is not a molecule.
    """
    smarts = FUNCTIONAL_GROUPS.get(group, group)
    pattern = Chem.MolFromSmarts(smarts)
    if pattern is None or not pattern.GetNumAtoms():
        names = ", ".join(FUNCTIONAL_GROUPS)
        raise InputError(f"group: got {quoted(group)}, expected {names} or a SMARTS")
    if smiles is None:
        table = open_table(bundled_dataset())
        places = [table.column(name, name) for name in ("smiles", "split")]
        texts, splits = zip(*([row.cells[place] for place in places] for row in table), strict=True)
    else:
        texts = tuple(smiles)
        is_test = np.random.default_rng(seed).permutation(len(texts)) < len(texts) / 5
        splits = tuple("test" if test else "train" for test in is_test)
    targets, ground_truth = np.zeros(len(texts)), []
    for row, mol in enumerate(map(parse_smiles, texts)):
        matches = mol.GetSubstructMatches(pattern, maxMatches=10_000)
        targets[row] = len(matches)
        mask = np.zeros(mol.GetNumAtoms(), dtype=bool)
        mask[[atom for match in matches for atom in match]] = True
        ground_truth.append(mask)
    if len({*targets.tolist()}) < 2:
        raise InputError(
            f"group: {quoted(group)} occurs equally often in every molecule, expected a group "
            "whose number varies"
        )
    return SyntheticDataset(group, smarts, texts, targets, tuple(ground_truth), splits)


@dataclass(frozen=True)
class GroundTruthScore:
    """How well the scores of a method separate ground-truth atoms from the others.

    Args:
        method: The method; ``uniform`` gives every atom the same score, and so 0.5.
        auroc: Mean over molecules of the area under the ROC curve of absolute scores: 1 = every
            ground-truth atom is ranked above every other, 0.5 = chance.
        molecules: Number of molecules that have atoms of both kinds.
    """

    method: str
    auroc: Estimate
    molecules: int


def atom_auroc(scores: NDArray[np.float64], ground_truth: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve of absolute scores; atoms must be of both kinds."""
    # Rounded, so that the scores of equivalent atoms are ties despite floating-point error.
    size = np.abs(scores)
    rounded = np.round(size / max(size.max(), np.finfo(float).tiny), 6)
    return float(roc_auc_score(ground_truth, rounded))


def ground_truth_auroc(
    model: MolAttn,
    dataset: SyntheticDataset,
    methods: Optional[Sequence[str]] = None,
    **options: Any,
) -> tuple[GroundTruthScore, ...]:
    """Compare the scores of methods with the ground-truth atoms of a synthetic dataset.

    Args:
        model: A model trained on the dataset.
        dataset: Molecules, preferably not in the training set. Those without a ground-truth atom,
            or without any other atom, are skipped.
        methods: Names in :data:`molattn.explain.METHODS`; None = all of them.
        options: Options of the methods, see :class:`molattn.explain.MethodOptions`.

    Raises:
        InputError: A model without such a task, a method that does not exist, or no molecule with
            atoms of both kinds.
    """
    names = tuple(METHODS) if methods is None else tuple(methods)
    chosen = [METHODS[name] for name in names]
    rows = [row for row, mask in enumerate(dataset.ground_truth) if 0 < mask.sum() < len(mask)]
    if not rows:
        raise InputError(
            f"molecules: got {len(dataset.smiles)}, and none with atoms of "
            f"{quoted(dataset.smarts)} and others, expected some"
        )
    smiles = [dataset.smiles[row] for row in rows]
    instances = read_instances(model, smiles, target=dataset.name)
    settings = MethodOptions(**options)
    values = np.zeros((len(names), len(rows)))
    for place, (row, instance) in enumerate(zip(rows, instances, strict=True)):
        for number, method in enumerate(chosen):
            scores = method.compute(instance, settings).atoms
            values[number, place] = atom_auroc(scores, dataset.ground_truth[row])
    values = [*values, np.full(len(rows), 0.5)]
    return tuple(
        GroundTruthScore(name, bootstrap_mean(of_method), len(rows))
        for name, of_method in zip([*names, "uniform"], values, strict=True)
    )
