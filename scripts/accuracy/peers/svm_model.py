"""Train a support vector machine with the Tanimoto kernel, and predict every row of the table.

The kernel of counts of Morgan environments a and b (radius 2, folded to 4,096) is
sum(min(a, b)) / sum(max(a, b)). The validation rows choose C and epsilon (in standard deviations of
the labels) from a grid, by the RMSE of numbers and the hinge loss of classes; then the machine
learns these rows as well. Probabilities of classes are Platt's, by a cross-validation.

Ralaivola et al., Neural Networks 2005, 18, 1093.
"""

from itertools import product
from typing import Any

import numpy as np
from features import molecule
from numpy.typing import NDArray
from rdkit.Chem import rdFingerprintGenerator
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import hinge_loss, root_mean_squared_error
from sklearn.model_selection import cross_val_predict
from sklearn.svm import SVC, SVR
from worker import Scale, Table, parser, read_table, write_predictions

MORGAN = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=4096)
BLOCK = 1000  # rows of the kernel at once
INNER_FOLDS = 5


def unary_counts(smiles: list[str]) -> csr_array:
    """Return counts in unary, so that products of rows are sums of minima, ``[n, features]``.

    A count of 3 is 1 in the first three columns of its feature.
    """
    found = [MORGAN.GetCountFingerprint(molecule(s)).GetNonzeroElements() for s in smiles]
    most = max(max(counts.values()) for counts in found)
    columns = [
        [place * most + n for place, count in counts.items() for n in range(count)]
        for counts in found
    ]
    starts = np.cumsum([0, *map(len, columns)])
    indices = np.concatenate(columns)
    shape = (len(smiles), MORGAN.GetOptions().fpSize * most)
    return csr_array((np.ones(len(indices), dtype=np.float32), indices, starts), shape=shape)


def tanimoto(left: csr_array, right: csr_array) -> NDArray[np.float32]:
    """Return the kernel of unary counts, ``[n, m]``."""
    total, others = (np.asarray(counts.sum(axis=1)) for counts in (left, right))
    blocks = []
    for start in range(0, len(total), BLOCK):
        shared = (left[start : start + BLOCK] @ right.T).toarray()
        blocks.append(shared / (total[start : start + BLOCK, None] + others - shared))
    return np.concatenate(blocks)


def regression(table: Table, kernel: NDArray[np.float32], options) -> NDArray[np.float64]:
    """Return the predictions of a regression; the kernel is of all rows, ``[n, n]``."""
    train, validation = table.rows("train"), table.rows("val")
    known = np.concatenate([train, validation])
    scale = Scale.fit(table.y[train])
    y = scale.apply(table.y)

    def fitted(rows: NDArray[np.intp], c: float, epsilon: float) -> SVR:
        model = SVR(kernel="precomputed", C=c, epsilon=epsilon)
        return model.fit(kernel[np.ix_(rows, rows)], y[rows])

    def error(grid: tuple[float, float]) -> float:
        predicted = fitted(train, *grid).predict(kernel[np.ix_(validation, train)])
        return root_mean_squared_error(y[validation], predicted)

    c, epsilon = min(product(options.c, options.epsilon), key=error)
    print(f"C {c:g}, epsilon {epsilon:g}")
    return scale.invert(fitted(known, c, epsilon).predict(kernel[:, known]))


def classification(table: Table, kernel: NDArray[np.float32], options) -> NDArray[np.float64]:
    """Return the probabilities of class 1; the kernel is of all rows, ``[n, n]``."""
    train, validation = table.rows("train"), table.rows("val")
    known = np.concatenate([train, validation])

    def error(c: float) -> float:
        model = SVC(kernel="precomputed", C=c)
        model.fit(kernel[np.ix_(train, train)], table.y[train])
        decision = model.decision_function(kernel[np.ix_(validation, train)])
        return hinge_loss(table.y[validation], decision, labels=[0, 1])

    c = min(options.c, key=error)
    print(f"C {c:g}")
    model = SVC(kernel="precomputed", C=c)
    inner, y = kernel[np.ix_(known, known)], table.y[known]
    held_out: Any = cross_val_predict(model, inner, y, cv=INNER_FOLDS, method="decision_function")
    platt = LogisticRegression().fit(held_out[:, None], y)
    decision = model.fit(inner, y).decision_function(kernel[:, known])
    return platt.predict_proba(decision[:, None])[:, 1]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--c", type=float, nargs="+", default=[1.0, 3.0, 10.0, 30.0])
    arguments.add_argument("--epsilon", type=float, nargs="+", default=[0.01, 0.1, 0.3])
    options = arguments.parse_args()
    table = read_table(options.table)
    counts = unary_counts(table.smiles)
    learn = regression if options.kind == "regression" else classification
    write_predictions(options.output, learn(table, tanimoto(counts, counts), options))


if __name__ == "__main__":
    main()
