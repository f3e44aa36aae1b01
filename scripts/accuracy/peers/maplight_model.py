"""Train CatBoost on the features of MapLight, and predict every row of the table.

Counts of Morgan environments (radius 2, folded to 1,024) and of Avalon's substructures (1,024), the
ErG fingerprint (315 numbers) and all of RDKit's 2D descriptors; CatBoost at its defaults but for
``random_strength=2`` and, for numbers, the mean absolute error as loss. Nothing is chosen, so it
learns the validation rows as well.

Notwell and Wood, arXiv 2310.00174 (2023).
"""

import numpy as np
from features import descriptors, molecule
from numpy.typing import NDArray
from rdkit import DataStructs
from rdkit.Avalon import pyAvalonTools
from rdkit.Chem import rdFingerprintGenerator, rdReducedGraphs
from worker import Scale, parser, read_table, write_predictions

SIZE = 1024
MORGAN = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=SIZE)


def features(smiles: str) -> NDArray[np.float32]:
    """Return counts, ErG numbers and descriptors of a molecule; NaN where it has no descriptor."""
    mol = molecule(smiles)
    avalon = np.zeros(SIZE)
    DataStructs.ConvertToNumpyArray(pyAvalonTools.GetAvalonCountFP(mol, SIZE), avalon)
    erg = rdReducedGraphs.GetErGFingerprint(mol)
    parts = [MORGAN.GetCountFingerprintAsNumPy(mol), avalon, erg, descriptors(mol)]
    return np.concatenate(parts).astype(np.float32)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--iterations", type=int, default=1000, help="trees")
    arguments.add_argument("--random-strength", type=float, default=2.0)
    options = arguments.parse_args()
    import catboost  # pyright: ignore[reportMissingImports]

    table = read_table(options.table)
    x = np.stack([features(smiles) for smiles in table.smiles])
    known = np.concatenate([table.rows("train"), table.rows("val")])
    common = {
        "iterations": options.iterations,
        "random_strength": options.random_strength,
        "random_seed": options.seed,
        "thread_count": 1,
        "allow_writing_files": False,
        "verbose": 0,
    }
    if options.kind == "regression":
        scale = Scale.fit(table.y[known])
        model = catboost.CatBoostRegressor(loss_function="MAE", **common)
        model.fit(x[known], scale.apply(table.y[known]))
        predicted = scale.invert(model.predict(x))
    else:
        model = catboost.CatBoostClassifier(**common)
        model.fit(x[known], table.y[known])
        predicted = model.predict_proba(x)[:, 1]
    write_predictions(options.output, predicted)


if __name__ == "__main__":
    main()
