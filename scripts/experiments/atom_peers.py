"""Properties of atoms and bonds: molattn against chemprop's mode for atoms and bonds.

Three public sets (all under the MIT license), read from a folder and never copied from it:

- ``shift``: measured 13C shifts in ppm, of ``cascade_data_Exp5K_Exp5K.csv.gz`` with the structures
  of ``cascade_data_Exp5K_DFT.sdf.gz`` (patonlab/CASCADE, ``data/Exp5K``).
- ``length``: lengths in angstrom of the bonds between heavy atoms in these structures, which DFT
  optimized. Hydrogens are no atoms of the graphs of either tool unless asked for.
- ``metabolism``: sites of metabolism, each molecule for one of six reactions, of
  ``sdfs/REACTION/molecola_NUMBER.sdf`` with ``xenosom_labels/REACTION.csv`` (AlexMacor/XenoSoM,
  ``Benchmark/sdfs.zip`` and ``Benchmark/csv_files/ST``).

Molecules are split at random, 80/10/10 for each seed; tools train on the first ``--most`` of the
training molecules and validate with at most an eighth as many. Each set, tool and seed is a row of
the results, and rows that are there are not computed again::

    python -m scripts.experiments.atom_peers SETS runs/atom_peers \
        --chemprop /envs/chemprop/bin/python --summary scripts/experiments/atom_peers.csv

Test labels of an element, or of a bond between two elements, that has no label in the training are
not scored: molattn does not predict them. The error of a molecule is the mean absolute error of its
labels or, of sites of metabolism, 1 - ROC-AUC: the fraction of pairs of a site and another atom in
which the other has the higher probability. Tools are compared by the differences of the errors of
each test molecule (of several seeds: their mean); standard errors are those of the mean over
molecules.
"""

import argparse
import ast
import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rdkit import Chem, rdBase
from sklearn.metrics import roc_auc_score

from scripts.benchmarks.commands import Commands

LEVELS = {"shift": "atom", "length": "bond", "metabolism": "atom"}
KINDS = {"shift": "regression", "length": "regression", "metabolism": "binary"}
ALONE = ["--predictor", "network"]  # without Gaussian process
ALL_PAIRS = ["--init-from", "none", "--graphs", "pairs", "--norm", "layer"]
IN_TURN = ["--init-from", "none", "--graphs", "bonds", "pairs", "--norm", "batch"]
NETWORKS: dict[str, list[str]] = {
    "molattn": [],
    "network": ALONE,
    "random": [*ALONE, *ALL_PAIRS],
    "random_edges": [*ALONE, *ALL_PAIRS, "--update-edges"],
    "in_turn": [*ALONE, *IN_TURN],
    "in_turn_edges": [*ALONE, *IN_TURN, "--update-edges"],
    "batch_edges": [*ALONE, *ALL_PAIRS[:-1], "batch", "--update-edges"],
}
TOOLS = (*NETWORKS, "chemprop")
KEY = ["set", "tool", "seed"]
FIELDS = [*KEY, "train", "test", "labels", "error", "all_labels", "train_s", "predict_s"]
CHEMPROP = "from chemprop.cli.main import main; main()"


class Molecule(NamedTuple):
    """A SMILES and the values of its atoms, or bonds, in the order in which RDKit reads it."""

    smiles: str
    values: Sequence[float | None]


def read_shifts(folder: Path) -> Iterator[Molecule]:
    """Yield molecules with 13C shifts."""
    table = pd.read_csv(folder / "cascade_data_Exp5K_Exp5K.csv.gz")
    shifts = {str(name): group for name, group in table.groupby("mol_id")}
    for mol in structures(folder):
        group = shifts.get(mol.GetProp("_Name"))
        if group is not None:
            values = dict(zip(group["atom_index"], group["Shift"], strict=True))
            yield from in_smiles_order(mol, values, {})


def read_lengths(folder: Path) -> Iterator[Molecule]:
    """Yield molecules with lengths of bonds between heavy atoms."""
    for mol in structures(folder):
        positions = mol.GetConformer().GetPositions()
        ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()]
        lengths = {
            frozenset(pair): round(float(np.linalg.norm(np.subtract(*positions[[*pair]]))), 5)
            for pair in ends
        }
        yield from in_smiles_order(mol, {}, lengths)


def read_sites(folder: Path) -> Iterator[Molecule]:
    """Yield molecules with 1 for sites of metabolism, of any reaction, and 0 for other atoms."""
    labels: dict[str, list[int]] = {}
    for path in sorted((folder / "xenosom_labels").glob("*.csv")):
        for name, group in pd.read_csv(path).groupby("mols"):
            mol = Chem.MolFromMolFile(str(folder / "sdfs" / path.stem / f"molecola_{name}.sdf"))
            values = dict(zip(group["atom_index"] - 1, group["y_true"], strict=True))
            for smiles, sites in in_smiles_order(mol, values, {}):
                merged = np.fmax(np.array(sites), np.array(labels.get(smiles, sites)))
                labels[smiles] = merged.astype(int).tolist()
    yield from (Molecule(*pair) for pair in labels.items())


READERS = {"shift": read_shifts, "length": read_lengths, "metabolism": read_sites}


def structures(folder: Path) -> Iterator[Chem.Mol]:
    """Yield the molecules of the SDF file, with all hydrogens."""
    with gzip.open(folder / "cascade_data_Exp5K_DFT.sdf.gz") as file:
        yield from filter(None, Chem.ForwardSDMolSupplier(file, removeHs=False))


def in_smiles_order(
    mol: Chem.Mol, atoms: dict[int, float], bonds: dict[frozenset[int], float]
) -> Iterator[Molecule]:
    """Yield a molecule with its values in the order of a SMILES, unless that has other atoms."""
    for atom in mol.GetAtoms():
        atom.SetIntProp("index", atom.GetIdx())
    heavy = Chem.RemoveHs(mol)
    smiles = Chem.MolToSmiles(heavy)
    order = heavy.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"]
    indices = [heavy.GetAtomWithIdx(index).GetIntProp("index") for index in order]
    read = Chem.MolFromSmiles(smiles)
    if read is None or read.GetNumAtoms() != len(indices) or not read.GetNumBonds():
        return
    if bonds:
        ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in read.GetBonds()]
        values = [bonds[frozenset(indices[atom] for atom in pair)] for pair in ends]
    else:
        values = [atoms.get(index) for index in indices]
    yield Molecule(smiles, values)


def read_set(name: str, options: argparse.Namespace) -> list[Molecule]:
    """Return the molecules of a set, each SMILES once, from a file of the runs if it is there."""
    path = options.runs / f"{name}.json"
    if not path.exists():
        values = {molecule.smiles: molecule.values for molecule in READERS[name](options.folder)}
        path.write_text(json.dumps(values))
    return [Molecule(*pair) for pair in json.loads(path.read_text()).items()]


def elements(molecule: Molecule, level: str) -> list[tuple[str, ...]]:
    """Return the element of each atom, or both elements of each bond, in the order of values."""
    mol = Chem.MolFromSmiles(molecule.smiles)
    if level == "atom":
        return [(atom.GetSymbol(),) for atom in mol.GetAtoms()]
    ends = [(bond.GetBeginAtom(), bond.GetEndAtom()) for bond in mol.GetBonds()]
    return [tuple(sorted(atom.GetSymbol() for atom in pair)) for pair in ends]


def with_known_elements(
    tested: list[Molecule], training: list[Molecule], level: str
) -> list[Molecule]:
    """Return test molecules without the labels of elements that have none in the training."""
    known = {
        element
        for molecule in training
        for element, value in zip(elements(molecule, level), molecule.values, strict=True)
        if value is not None
    }
    kept = []
    for smiles, values in tested:
        pairs = zip(elements(Molecule(smiles, values), level), values, strict=True)
        kept.append(Molecule(smiles, [v if element in known else None for element, v in pairs]))
    return kept


def write_tables(
    molecules: list[Molecule], seed: int, most: int, level: str, folder: Path
) -> tuple[list[Molecule], int]:
    """Write the tables of a seed; return the test molecules and the number for training."""
    order = np.random.default_rng(seed).permutation(len(molecules)).tolist()
    tenth = len(molecules) // 10
    training = order[2 * tenth :][:most]
    splits = {
        "train": training,
        "val": order[tenth : 2 * tenth][: len(training) // 8],
        "test": order[:tenth],
    }
    rows = [
        {"smiles": molecules[index].smiles, "y": str(molecules[index].values), "split": split}
        for split, indices in splits.items()
        for index in indices
    ]
    frame = pd.DataFrame(rows)
    frame[frame["split"] != "test"].to_csv(folder / "train.csv", index=False)
    tested = frame[frame["split"] == "test"]
    tested[["smiles"]].to_csv(folder / "test.csv", index=False)
    # chemprop wants test rows in training, and a column of labels in prediction: it has gaps here.
    first = frame[frame["split"] == "val"].head(1).assign(split="test")
    learned = pd.concat([frame[frame["split"] != "test"], first])
    learned.to_csv(folder / "chemprop.csv", index=False)
    gaps = [str([None] * len(molecules[index].values)) for index in splits["test"]]
    tested[["smiles"]].assign(y=gaps).to_csv(folder / "chemprop_test.csv", index=False)
    learned_from, scored = (
        [molecules[index] for index in splits[split]] for split in ("train", "test")
    )
    return with_known_elements(scored, learned_from, level), len(training)


def words(tool: str, name: str, seed: int, folder: Path, python: str) -> list[list[str]]:
    """Return the commands that train a tool and predict the test molecules."""
    output = ["--output", str(folder / "predicted.csv")]
    level = LEVELS[name]
    if tool == "chemprop":
        kind = {"binary": "classification"}.get(KINDS[name], KINDS[name])
        device = "--accelerator cpu --num-workers 0 --smiles-columns smiles".split()
        train = [python, "-c", CHEMPROP, "train", "--data-path", str(folder / "chemprop.csv")]
        train += [f"--{level}-target-columns", "y", "--splits-column", "split", "--task-type", kind]
        train += ["--output-dir", str(folder / "run"), "--pytorch-seed", str(seed), *device]
        predict = [python, "-c", CHEMPROP, "predict", "--test-path"]
        predict += [str(folder / "chemprop_test.csv")]
        model = str(folder / "run/model_0/best.pt")
        return [train, [*predict, *output, "--model-paths", model, *device]]
    train = [python, "-m", "molattn", "train", str(folder / "train.csv"), "--no-baselines"]
    train += [f"--{level}-target-columns", "y", "--split-column", "split", "--task", KINDS[name]]
    train += ["--output", str(folder / "run"), "--seed", str(seed), "--bootstrap", "0"]
    train += ["--device", "cpu", "--threads", "1", *NETWORKS[tool]]
    predict = [python, "-m", "molattn", "predict", str(folder / "run"), str(folder / "test.csv")]
    return [train, [*predict, *output]]


def read_predictions(path: Path) -> list[list[float]]:
    """Return the values, or probabilities, of each molecule."""
    frame = pd.read_csv(path)
    column = next(name for name in ("y_probability", "y_predicted", "y.1") if name in frame)
    parse = ast.literal_eval if column == "y.1" else json.loads  # the second y is chemprop's
    return [parse(cell) for cell in frame[column]]


def errors(kind: str, labels: np.ndarray, predictions: np.ndarray) -> tuple[float, float]:
    """Return the error of a molecule, or of all, and a score: RMSE or ROC-AUC."""
    if kind == "binary":
        ranked = float(roc_auc_score(labels, predictions)) if 0 < labels.mean() < 1 else np.nan
        return 1.0 - ranked, ranked
    residuals = labels - predictions
    return float(np.abs(residuals).mean()), float(np.sqrt((residuals**2).mean()))


def run(
    row: dict[str, Any], molecules: list[Molecule], options: argparse.Namespace, commands: Commands
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Train and score; return the row of results and the error of each molecule."""
    name, tool, seed = (row[column] for column in KEY)
    folder = options.runs / "_".join(map(str, row.values()))
    folder.mkdir(parents=True, exist_ok=True)
    tested, count = write_tables(molecules, seed, options.most, LEVELS[name], folder)
    python = str(options.chemprop if tool == "chemprop" else options.python)
    costs = [
        commands.run(command, folder / "log.txt")
        for command in words(tool, name, seed, folder, python)
    ]
    records = []
    pairs = []
    for molecule, predicted in zip(tested, read_predictions(folder / "predicted.csv"), strict=True):
        values = molecule.values
        both = np.array([values, predicted[: len(values)]], dtype=float)  # hydrogens follow
        pair = both[:, ~np.isnan(both[0])]
        pairs.append(pair)
        records.append(row | {"smiles": molecule.smiles, "error": errors(KINDS[name], *pair)[0]})
    frame = pd.DataFrame(records)
    labels, predictions = np.concatenate(pairs, axis=1)
    score = errors(KINDS[name], labels, predictions)[1]
    scores = {"error": frame["error"].mean(), "all_labels": score}
    seconds = {"train_s": costs[0].cpu, "predict_s": costs[1].cpu}
    sizes = {"train": count, "test": len(tested), "labels": len(labels)}
    return row | sizes | scores | seconds, frame


def differences(molecules: pd.DataFrame) -> pd.DataFrame:
    """Return the mean differences of two tools with their standard errors over molecules."""
    pairs = [("molattn", "chemprop"), ("molattn", "network"), ("random", "chemprop")]
    pairs += [("in_turn", "random"), ("in_turn_edges", "random_edges")]
    pairs += [("batch_edges", "random_edges")]
    rows = []
    for name, group in molecules.groupby("set", sort=False):
        wide = group.set_index(["smiles", "seed", "tool"])["error"].unstack("tool")  # noqa: PD010
        for first, second in [*pairs, ("random_edges", "chemprop"), ("random_edges", "random")]:
            if {first, second} <= {*wide}:
                both = wide[[first, second]].dropna()
                means = (both[first] - both[second]).groupby("smiles").mean()
                seeds = both.index.get_level_values("seed").nunique()
                row = {"set": name, "tool": f"{first} - {second}", "seed": f"{seeds} seeds"}
                rows.append(row | {"test": len(means), "error": means.mean(), "sem": means.sem()})
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the sets")
    parser.add_argument("runs", type=Path, help="folder of models, predictions and results")
    parser.add_argument("--sets", nargs="+", choices=[*READERS], default=[*READERS])
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=["molattn", "chemprop"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--most", type=int, default=1500, help="training molecules of a set")
    parser.add_argument("--python", default="python", help="Python of molattn")
    parser.add_argument("--chemprop", default="python", help="Python of chemprop's environment")
    parser.add_argument("--summary", type=Path, help="CSV of scores and differences")
    options = parser.parse_args()
    rdBase.DisableLog("rdApp.*")
    options.runs.mkdir(parents=True, exist_ok=True)
    results = options.runs / "results.csv"
    by_molecule = options.runs / "molecules.csv"
    with Commands() as commands:
        for seed in options.seeds:
            for name in options.sets:
                for tool in options.tools:
                    row = dict(zip(KEY, (name, tool, seed), strict=True))
                    if results.exists():
                        trained = pd.read_csv(results)[KEY]
                        if (trained == [*row.values()]).all(axis=1).any():
                            continue
                    molecules = read_set(name, options)
                    scored, frame = run(row, molecules, options, commands)
                    frame.to_csv(
                        by_molecule, mode="a", index=False, header=not by_molecule.exists()
                    )
                    pd.DataFrame([scored], columns=FIELDS).to_csv(
                        results, mode="a", index=False, header=not results.exists()
                    )
    scored = pd.read_csv(results)
    summary = pd.concat([scored, differences(pd.read_csv(by_molecule))])
    print(summary.round(5).to_string(index=False))
    if options.summary:
        summary.round(5).to_csv(options.summary, index=False)


if __name__ == "__main__":
    main()
