r"""Intervals of differences of matched pairs: coverage, width, and how often the sign is right.

A model of each table learns from 500 molecules drawn at random (50 of them validation rows), from
`base`, with the default predictor; at most 800 others are test rows. Matched pairs are test
molecules that differ in one substituent with at most a third of the atoms, by one cut of RDKit's
rdMMPA or a hydrogen in place of it. Intervals are at level 0.9. *independent* is the interval whose
half-width is the root of the sum of both squared half-widths. Models go to a folder, and those that
are there are not trained again::

    python -m scripts.experiments.differences ../shared/data kept \
        scripts/experiments/differences.csv
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rdkit import Chem
from rdkit.Chem import CanonSmiles, rdMMPA

import molattn
from molattn import MolAttn

TABLES = {"esol": "esol.csv", "lipo": "lipo.csv"}
TABLES |= {name: f"potency/{name}.csv.gz" for name in ("CHEMBL219_Ki", "CHEMBL244_Ki")}
LEARNED = 500
VALIDATION = 50
TESTED = 800
LEVEL = 0.9
MOST_CHANGED = 1 / 3  # of the heavy atoms of a molecule
SIZES = (0.0, 0.5, 1.0, 2.0, np.inf)  # of |difference| over its standard error
ONE_SIGMA = 0.6827


def matched_pairs(smiles: Sequence[str]) -> list[tuple[int, int]]:
    """Return the pairs of molecules that differ in one substituent, by their indices."""
    of_core = defaultdict(set)
    mols = [Chem.MolFromSmiles(text) for text in smiles]
    for index, mol in enumerate(mols):
        for _, fragments in rdMMPA.FragmentMol(mol, maxCuts=1, maxCutBonds=60, resultsAsMols=False):
            sides = sorted(map(Chem.MolFromSmiles, fragments.split(".")), key=heavy_atoms)
            if heavy_atoms(sides[0]) <= MOST_CHANGED * heavy_atoms(mol):
                of_core[Chem.MolToSmiles(sides[1])].add(index)
    by_smiles = {Chem.MolToSmiles(mol): index for index, mol in enumerate(mols)}
    for core, members in of_core.items():
        bare = Chem.MolFromSmiles(core.replace("[*:1]", "[H]"))
        text = None if bare is None else Chem.MolToSmiles(bare)
        if text in by_smiles:
            members.add(by_smiles[text])
    return sorted(
        {pair for members in of_core.values() for pair in combinations(sorted(members), 2)}
    )


def heavy_atoms(mol: Chem.Mol) -> int:
    return sum(atom.GetAtomicNum() > 1 for atom in mol.GetAtoms())


def trained(frame: pd.DataFrame, folder: Path) -> MolAttn:
    if folder.exists():
        return MolAttn.from_pretrained(folder)
    split = np.repeat(["train", "validation"], [LEARNED - VALIDATION, VALIDATION])
    learned = frame[:LEARNED].assign(split=split)
    options: Any = {"split_column": "split", "init_from": "base", "baselines": False}
    model = molattn.train(learned, "y", **options).model
    model.save_pretrained(folder)
    return model


def results(name: str, frame: pd.DataFrame, model: MolAttn) -> dict[str, Any]:
    tested = frame[LEARNED : LEARNED + TESTED]
    tested = tested[~tested["smiles"].map(CanonSmiles).duplicated()].reset_index(drop=True)
    pairs = np.array(matched_pairs(tested["smiles"].tolist()))
    labels = tested["y"].to_numpy()
    one, other = (tested["smiles"][side].tolist() for side in pairs.T)
    measured = labels[pairs[:, 0]] - labels[pairs[:, 1]]
    difference, low, high = (x[:, 0] for x in model.predict_difference(one, other, LEVEL))
    _, bottom, top = (x[:, 0] for x in model.predict_difference(one, other, ONE_SIGMA))
    ends = [model.predict_interval(side, LEVEL) for side in (one, other)]
    inside = [
        (end[0][:, 0] <= labels[rows]) & (labels[rows] <= end[1][:, 0])
        for end, rows in zip(ends, pairs.T, strict=True)
    ]
    independent = np.sqrt(sum(((end[1] - end[0])[:, 0] / 2) ** 2 for end in ends))
    width = (high - low) / 2
    size = np.abs(difference) / ((top - bottom) / 2)  # over the standard error
    is_right = np.sign(difference) == np.sign(measured)
    row: dict[str, Any] = {
        "table": name,
        "pairs": len(pairs),
        "coverage_of_molecules": np.mean(inside),
        "coverage": ((low <= measured) & (measured <= high)).mean(),
        "half_width": width.mean(),
        "coverage_independent": (np.abs(measured - difference) <= independent).mean(),
        "half_width_independent": independent.mean(),
        "error": np.abs(measured - difference).mean(),
        "error_of_no_difference": np.abs(measured).mean(),
    }
    for least, most in pairwise(SIZES):
        is_here = (size >= least) & (size < most) & (measured != 0.0)
        row[f"pairs_{least:g}"] = is_here.sum()
        row[f"right_{least:g}"] = is_right[is_here].mean()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("kept", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    rows: list[Any] = []
    for name, file in TABLES.items():
        frame = pd.read_csv(options.data / file).iloc[:, :2].set_axis(["smiles", "y"], axis=1)
        frame = frame.sample(frac=1.0, random_state=0).reset_index(drop=True)
        rows.append(results(name, frame, trained(frame, options.kept / name)))
        pd.DataFrame(rows).round(4).to_csv(options.output, index=False)


if __name__ == "__main__":
    main()
