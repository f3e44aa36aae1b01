"""Score a random forest on Morgan fingerprints and descriptors on the bundled solubility split.

The forest sees a molecule as 2,048 Morgan counts (radius 2) and RDKit's 2-D descriptors: the
yardstick that a learned representation has to beat.
"""

import argparse
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import Descriptors, rdFingerprintGenerator
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from molattn.table import bundled_dataset


def features(smiles: Sequence[str]) -> NDArray[np.float32]:
    """Return Morgan counts and descriptors, ``float32 [molecules, 2048 + descriptors]``."""
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    mols = [Chem.MolFromSmiles(text) for text in smiles]
    counts = np.stack([generator.GetCountFingerprintAsNumPy(mol) for mol in mols])
    descriptors = pd.DataFrame([Descriptors.CalcMolDescriptors(mol) for mol in mols])
    # Some descriptors overflow or are undefined for some molecules.
    limit = float(np.finfo(np.float32).max)
    cleaned = np.nan_to_num(descriptors.to_numpy(np.float64)).clip(-limit, limit)
    return np.hstack([counts, cleaned]).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", type=int, default=500, help="trees (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    options = parser.parse_args()

    table = pd.read_csv(bundled_dataset())
    x, y = features(table["smiles"].tolist()), table["logS"].to_numpy()
    train = (table["split"] == "train").to_numpy()
    forest = RandomForestRegressor(
        options.trees, n_jobs=options.jobs, random_state=options.seed
    ).fit(x[train], y[train])
    predicted, measured = forest.predict(x[~train]), y[~train]
    print(f"random forest, {len(measured)} test molecules")
    print(f"RMSE {root_mean_squared_error(measured, predicted):.3f} log mol/L")
    print(f"MAE  {mean_absolute_error(measured, predicted):.3f} log mol/L")
    print(f"R2   {r2_score(measured, predicted):.3f}")


if __name__ == "__main__":
    main()
