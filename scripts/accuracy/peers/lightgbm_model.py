"""Train LightGBM on Morgan counts and RDKit's descriptors, and predict every row of the table.

Counts of Morgan environments of radius 2 are folded to 2,048 numbers; all of RDKit's 2D
descriptors join them. The loss of the validation rows decides the number of trees.

Ke et al., Advances in Neural Information Processing Systems 30 (2017).
"""

import numpy as np
from features import descriptors, molecule
from numpy.typing import NDArray
from rdkit.Chem import rdFingerprintGenerator
from worker import parser, read_table, write_predictions

OBJECTIVES = {"regression": ("regression", "rmse"), "binary": ("binary", "binary_logloss")}


def features(smiles: str) -> NDArray[np.float32]:
    """Return counts and descriptors of a molecule; a descriptor that it has not is NaN."""
    mol = molecule(smiles)
    parts = [MORGAN.GetCountFingerprintAsNumPy(mol), descriptors(mol)]
    return np.concatenate(parts).astype(np.float32)


MORGAN = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=2000, help="most trees")
    arguments.add_argument("--patience", type=int, default=100, help="trees without progress")
    arguments.add_argument("--learning-rate", type=float, default=0.05)
    arguments.add_argument("--leaves", type=int, default=31, help="leaves of a tree")
    arguments.add_argument("--least", type=int, default=20, help="molecules in a leaf, at least")
    arguments.add_argument("--features", type=float, default=0.5, help="part drawn for a tree")
    arguments.add_argument("--rows", type=float, default=0.8, help="part drawn for a tree")
    options = arguments.parse_args()
    import lightgbm  # pyright: ignore[reportMissingImports]

    table = read_table(options.table)
    x = np.stack([features(smiles) for smiles in table.smiles])
    train, validation = (
        lightgbm.Dataset(x[rows], table.y[rows]) for rows in map(table.rows, ("train", "val"))
    )
    objective, metric = OBJECTIVES[options.kind]
    model = lightgbm.train(
        {
            "objective": objective,
            "metric": metric,
            "learning_rate": options.learning_rate,
            "num_leaves": options.leaves,
            "min_data_in_leaf": options.least,
            "feature_fraction": options.features,
            "bagging_fraction": options.rows,
            "bagging_freq": 1,
            "seed": options.seed,
            "num_threads": 1,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        },
        train,
        num_boost_round=options.rounds,
        valid_sets=[validation],
        callbacks=[lightgbm.early_stopping(options.patience, verbose=False)],
    )
    print(f"{model.best_iteration} trees")
    write_predictions(options.output, model.predict(x, num_iteration=model.best_iteration))


if __name__ == "__main__":
    main()
