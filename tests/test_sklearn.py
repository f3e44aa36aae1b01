import pickle
from io import BytesIO

import joblib
import numpy as np
import pandas as pd
import pytest
from rdkit import Chem
from scipy.sparse import issparse
from sklearn.exceptions import NotFittedError
from sklearn.utils import InputTags
from sklearn.utils.estimator_checks import estimator_checks_generator

from molattn import MolAttn
from molattn.config import TrainConfig
from molattn.errors import InputError, SmilesError
from molattn.sklearn import MolAttnClassifier, MolAttnRegressor

TINY = {"width": 4, "heads": 1, "layers": 1, "edge_width": 4, "device": "cpu"}
TINY |= {"epochs": 1, "batch_size": 256, "head_dropout": 0.1}
SMILES = ["C" * n + end for n in range(1, 9) for end in ("O", "N", "c1ccccc1")]
CARBONS = np.array([text.upper().count("C") for text in SMILES], dtype=float)
RING = np.array(["ring" if "c" in text else "chain" for text in SMILES])


# scikit-learn's own checks.

UNITS = ["C", "N", "O", "S", "P", "B", "[SiH2]", "[GeH2]", "[Se]"]


class ReadsNumbers:
    """Lets the checks, which make up numbers, feed SMILES: two atoms of a chain for a number."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags = InputTags(two_d_array=True)
        for kind in (tags.regressor_tags, tags.classifier_tags):
            if kind is not None:
                kind.poor_score = True  # of so small a network, trained so shortly
        return tags

    def fit(self, X, y=None, sample_weight=None):
        vars(self).pop("_width", None)
        smiles = self._smiles(X)
        self._width = np.asarray(X).shape[-1:]
        return super().fit(smiles, y, sample_weight)

    def _smiles(self, X):
        if issparse(X) or np.asarray(X).ndim != 2:
            return X
        rows = np.asarray(X, dtype=float)
        if rows.shape[-1:] != getattr(self, "_width", rows.shape[-1:]):
            raise ValueError("another number of columns")
        codes = np.floor(rows * 20).astype(int) % len(UNITS) ** 2
        pairs = [[divmod(code, len(UNITS)) for code in row] for row in codes]
        return ["F" + "".join(UNITS[a] + UNITS[b] for a, b in row) for row in pairs]


class Regressor(ReadsNumbers, MolAttnRegressor):
    def predict(self, X):
        return super().predict(self._smiles(X))


class Classifier(ReadsNumbers, MolAttnClassifier):
    def predict_proba(self, X):
        return super().predict_proba(self._smiles(X))


NUMBERS = "is about columns of numbers; SMILES are one column of texts"
NAMES = (
    "complex_data estimators_empty_data_messages estimators_nan_inf fit2d_predict1d n_features_in"
)
EXPECTED_FAILURES = {f"check_{name}": NUMBERS for name in NAMES.split()} | {
    "check_n_features_in_after_fitting": NUMBERS,
    "check_sample_weight_equivalence_on_dense_data": (
        "a row of weight 2 is in one batch of an epoch, two rows are in two of them"
    ),
}


@pytest.mark.parametrize(
    "estimator,check",
    [
        pair
        for kind in (Regressor, Classifier)
        for pair in estimator_checks_generator(
            kind(**TINY, predictor="network", init_from="none", target_transform="none"),
            expected_failed_checks=EXPECTED_FAILURES,
            mark="xfail",
        )
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
def test_the_estimators_pass_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


# The same and more, with SMILES.


def fitted(kind=MolAttnRegressor, y=CARBONS, X=SMILES, **options):
    return kind(**TINY | options).fit(X, y)


@pytest.fixture(scope="module")
def regressor():
    return fitted()


@pytest.fixture(scope="module")
def classifier():
    return fitted(MolAttnClassifier, RING)


def test_the_estimators_learn():
    options = {"width": 16, "heads": 2, "epochs": 40, "batch_size": 8, "learning_rate": 0.01}
    options |= {"readout": "sum", "dropout": 0.0}
    assert fitted(**options).score(SMILES, CARBONS) > 0.9
    assert fitted(MolAttnClassifier, RING, **options).score(SMILES, RING) > 0.95


@pytest.mark.parametrize(
    "X",
    [
        tuple(SMILES),
        np.array(SMILES, dtype=object)[:, None],
        pd.Series(SMILES, index=range(5, 29)),
        pd.DataFrame({"molecule": SMILES}),
        np.array([Chem.AddHs(Chem.MolFromSmiles(text)) for text in SMILES], dtype=object),
    ],
    ids=["tuple", "column", "Series", "frame", "mols"],
)
def test_molecules_come_in_any_form(X, regressor):
    estimator = fitted(X=X)
    np.testing.assert_allclose(estimator.predict(X), regressor.predict(SMILES), atol=1e-5)
    is_frame = isinstance(X, pd.DataFrame)
    names = ["molecule"] if is_frame else None
    assert getattr(estimator, "feature_names_in_", None) == names
    if is_frame:
        with pytest.raises(InputError, match="'name'"):
            estimator.predict(pd.DataFrame({"name": SMILES}))


@pytest.mark.parametrize(
    "kind,y,of_weight_0",
    [(MolAttnRegressor, CARBONS, 1e6), (MolAttnClassifier, RING, "a class of its own")],
)
def test_a_row_of_weight_0_is_like_a_removed_row(kind, y, of_weight_0):
    rng = np.random.default_rng(0)
    some = rng.random(len(SMILES)) > 0.3
    weights = np.where(some, rng.uniform(0.5, 2.0, len(SMILES)), 0.0)
    odd = [text if kept else "not a molecule" for text, kept in zip(SMILES, some, strict=True)]
    labels = np.array([y[n] if kept else of_weight_0 for n, kept in enumerate(some)])
    options = TINY | {"epochs": 2, "batch_size": 4, "validation_size": 0.6}
    with_them = kind(**options).fit(odd, labels, weights)
    without = kind(**options).fit([*np.array(SMILES)[some]], labels[some], weights[some])
    for method in (MolAttn.predict, MolAttn.predict_interval):
        found, expected = (method(one.model_, SMILES) for one in (with_them, without))
        np.testing.assert_array_equal(found, expected)
    if kind is MolAttnClassifier:
        assert with_them.classes_.tolist() == without.classes_.tolist() == ["chain", "ring"]
    odd = ["not a molecule", *SMILES[1:5], "C(C", *SMILES[6:]]
    with pytest.raises(InputError, match=r"row 6 .*'C\(C'"):
        kind(**TINY).fit(odd, y, np.r_[0.0, np.ones(len(SMILES) - 1)])


@pytest.mark.parametrize("module", [pickle, joblib])
def test_an_estimator_is_pickled_without_pickled_modules(regressor, classifier, module):
    for estimator in (regressor, classifier):
        file = BytesIO()
        module.dump(estimator, file)
        assert b"torch.nn" not in file.getvalue()
        assert b"MolAttnConfig" not in file.getvalue()
        file.seek(0)
        again = module.load(file)
        np.testing.assert_array_equal(again.predict(SMILES), estimator.predict(SMILES))
        assert again.get_params() == estimator.get_params()


def test_parameters_are_the_options_of_a_run():
    parameters = MolAttnRegressor().get_params()
    assert parameters == MolAttnClassifier().get_params()
    options = {"epochs", "learning_rate", "width", "readout", "loss", "validation_size"}
    assert options <= parameters.keys()
    assert parameters.keys() <= {*TrainConfig.options(), "random_state", "attention_score"}
    assert repr(MolAttnRegressor(epochs=3)) == "MolAttnRegressor(epochs=3)"
    for name in ("epoch", "devices", "num_nodes"):  # only the command line starts processes
        with pytest.raises(TypeError, match=name):
            MolAttnRegressor(**{name: 2})


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 0},
        {"random_state": -1},
        {"attention_score": "x"},
        {"validation_size": 0.0},
        {"validation_size": 1.0},
        {"positive_class": "ring"},
    ],
)
def test_options_are_named_as_parameters(options):
    with pytest.raises(InputError) as caught:
        fitted(**options)
    (name,) = options
    assert name in str(caught.value)
    assert "--" not in str(caught.value)


@pytest.mark.parametrize(
    "y",
    [
        np.array(["a", np.nan, "b"], dtype=object),
        ["a", None, "b"],
        [0.0, np.nan, 1.0],
        pd.Series([0, pd.NA, 1], dtype="Int64"),
        pd.DataFrame({"y": ["a", None, "b"]}),
    ],
    ids=["array", "list", "numbers", "Int64", "frame"],
)
def test_a_missing_class_is_named_by_its_row(y):
    with pytest.raises(InputError, match="y, row 2"):
        fitted(MolAttnClassifier, y, SMILES[:3])


def test_multiple_targets_may_lack_labels():
    y = np.column_stack([CARBONS, -CARBONS])
    y[::2, 1] = np.nan
    # Named as the columns that the estimator adds to them.
    estimator = fitted(y=pd.DataFrame(y, columns=["weight", "smiles"]))
    assert estimator.predict(SMILES[:3]).shape == (3, 2)
    assert estimator.model_.config.targets == ("weight", "smiles")
    with pytest.raises(ValueError, match="NaN"):
        fitted(y=y[:, 1])
    y[4] = np.nan
    with pytest.raises(InputError, match="row 5"):
        fitted(y=y)


@pytest.mark.parametrize(
    "y,classes",
    [
        (RING == "ring", [False, True]),
        (CARBONS.astype(int) % 3 - 1, [-1, 0, 1]),
        (np.array(["active", "Nan", "unknown"])[np.arange(24) % 3], ["Nan", "active", "unknown"]),
        (pd.Series([2**60, 2**60 + 1] * 12, dtype="Int64"), [2**60, 2**60 + 1]),
    ],
    ids=["booleans", "numbers", "words", "large"],
)
def test_classes_keep_their_type_and_order(y, classes):
    estimator = fitted(MolAttnClassifier, y)
    assert estimator.classes_.tolist() == classes
    assert estimator.model_.config.tasks[0].classes == tuple(map(str, classes))
    probabilities = estimator.predict_proba(SMILES)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-6)
    likeliest = estimator.classes_[probabilities.argmax(axis=1)]
    np.testing.assert_array_equal(estimator.predict(SMILES), likeliest)


def test_an_error_names_the_parameter(regressor):
    estimator = MolAttnRegressor(**TINY)
    with pytest.raises(NotFittedError):
        estimator.predict(SMILES)
    mols = [Chem.MolFromSmiles(text) for text in SMILES]
    for bad in ("C(", None, Chem.MolFromSmiles("CC", sanitize=False)):
        with pytest.raises(InputError, match="row 2"):
            estimator.fit([mols[0], bad, *mols[2:]], CARBONS)
    for X, y in (
        ("CCO", [1.0]),
        (mols[0], [1.0]),
        (pd.DataFrame({"a": SMILES, "b": SMILES}), CARBONS),
        (SMILES, CARBONS[:5]),
    ):
        with pytest.raises(ValueError, match=r"X|inconsistent"):
            estimator.fit(X, y)
    with pytest.raises(InputError, match="y: "):
        fitted(MolAttnClassifier, np.zeros(24))
    with pytest.raises((TypeError, ValueError)):
        fitted(MolAttnClassifier, pd.Series([1, "1", 2] * 8).astype("category"))
    with pytest.raises(SmilesError, match="position 1"):
        regressor.predict(["C", "C("])


def test_auxiliary_labels_of_rows_without_other_labels_are_learned():
    known = np.arange(len(SMILES)) % 2 == 0
    auxiliary = pd.DataFrame({"n": np.where(known, np.nan, CARBONS), "end": RING})
    auxiliary.index += 7
    y = np.where(known, CARBONS, np.nan)
    regressor = MolAttnRegressor(**TINY).fit(SMILES, y, auxiliary=auxiliary)
    assert regressor.predict(SMILES).shape == (len(SMILES),)
    assert len(regressor.model_.config.auxiliary_columns) == 2
    classifier = MolAttnClassifier(**TINY, auxiliary_weight=0.5)
    classifier.fit(SMILES, np.where(known, RING, None), auxiliary=CARBONS)
    assert [*classifier.classes_] == ["chain", "ring"]
    assert classifier.predict_proba(SMILES).shape == (len(SMILES), 2)
    with pytest.raises(ValueError, match="NaN"):
        MolAttnRegressor(**TINY).fit(SMILES, y)
