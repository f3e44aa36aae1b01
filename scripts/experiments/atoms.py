"""Exact targets of atoms and bonds: layers with updated edges against layers without.

RDKit computes, for molecules with all hydrogens, Crippen's contributions to logP (their sum is
logP), Gasteiger's partial charges (their sum is the charge), and of each bond the difference of the
charges of its atoms (``polarity``) and the number of atoms on its smaller side (``side``, of bonds
outside rings). Networks of one size learn them from random weights::

    python -m scripts.experiments.atoms ../shared/data/esol.csv runs/atoms.csv --molecules 400

Each network is one row of the results; those that are there already are not trained again. In the
end it prints the RMSE of test molecules, the mean and standard error over seeds, and the paired
difference of networks with and without updated edges.
"""

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rdkit import Chem
from rdkit.Chem import rdMolDescriptors, rdPartialCharges

import molattn

ATOMS = ("crippen", "charge")
BONDS = ("polarity", "side")
FIELDS: tuple[str, ...] = ("updates", "seed", "molecules", "epochs", *ATOMS, *BONDS, "seconds")


def smaller_side(mol: Chem.Mol, bond: Chem.Bond) -> int | None:
    """Return the number of atoms of the smaller part that is left without a bond; None in rings."""
    if bond.IsInRing():
        return None
    halves = Chem.GetMolFrags(Chem.FragmentOnBonds(mol, [bond.GetIdx()], addDummies=False))
    sizes = [len(atoms) for atoms in halves if {*atoms} & {bond.GetBeginAtomIdx()}]
    return min(sizes[0], mol.GetNumAtoms() - sizes[0])


def targets(smiles: str) -> dict[str, Any] | None:
    """Return the lists of values of a molecule; None if a charge is not defined."""
    mol = Chem.AddHs(Chem.MolFromSmiles(smiles))
    rdPartialCharges.ComputeGasteigerCharges(mol)
    charges = [atom.GetDoubleProp("_GasteigerCharge") for atom in mol.GetAtoms()]
    if not np.isfinite(charges).all() or not mol.GetNumBonds():
        return None
    # The only name that RDKit has for them.
    contributions = rdMolDescriptors._CalcCrippenContribs(mol)  # noqa: SLF001
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()]
    return {
        "smiles": smiles,  # its atoms, then all hydrogens
        "crippen": [logp for logp, _ in contributions],
        "charge": charges,
        "polarity": [abs(charges[first] - charges[second]) for first, second in ends],
        "side": [smaller_side(mol, bond) for bond in mol.GetBonds()],
    }


def read(path: Path, count: int) -> pd.DataFrame:
    """Return the targets of the first molecules of a table."""
    values = (targets(smiles) for smiles in pd.read_csv(path)["smiles"].head(count))
    return pd.DataFrame([row for row in values if row is not None])


def train(frame: pd.DataFrame, seed: int, epochs: int, *, updates: bool) -> dict[str, Any]:
    """Train a network and return its row of results."""
    start = time.process_time()
    run = molattn.train(
        frame,
        [],
        atom_target_columns=ATOMS,
        bond_target_columns=BONDS,
        charge_columns=["charge"],
        update_edges=updates,
        seed=seed,
        epochs=epochs,
        width=64,
        layers=3,
        init_from="none",
        graphs=("pairs",),
        norm="layer",
        bootstrap=0,
    )
    scores = {name: run.scores[name]["rmse"] for name in (*ATOMS, *BONDS)}
    seconds = round(time.process_time() - start, 1)
    return {"updates": int(updates), "seed": seed, "epochs": epochs, **scores, "seconds": seconds}


def print_results(results: pd.DataFrame) -> None:
    """Print means and standard errors over seeds, and the paired differences."""
    names = [*ATOMS, *BONDS, "seconds"]
    print(results.groupby("updates")[names].agg(["mean", "sem"]).T.to_string())
    without, updated = (results[results["updates"] == flag].set_index("seed") for flag in (0, 1))
    differences = (updated[names] - without[names]).dropna()
    print("\nwith updated edges minus without, paired by seed:")
    print(differences.agg(["mean", "sem"]).T.to_string())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--molecules", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    frame = read(options.table, options.molecules)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    if not options.results.exists():
        options.results.write_text(",".join(FIELDS) + "\n")
    for seed in range(options.seeds):
        for updates in (False, True):
            key = {"updates": int(updates), "seed": seed, "epochs": options.epochs}
            key["molecules"] = options.molecules
            trained = pd.read_csv(options.results)
            if (trained[[*key]] == [*key.values()]).all(axis=1).any():
                continue
            row = key | train(frame, seed, options.epochs, updates=updates)
            with options.results.open("a", newline="") as file:
                csv.DictWriter(file, FIELDS).writerow(row)
    results = pd.read_csv(options.results)
    same = (results["molecules"] == options.molecules) & (results["epochs"] == options.epochs)
    print_results(results[same])


if __name__ == "__main__":
    main()
