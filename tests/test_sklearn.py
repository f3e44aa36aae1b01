import pickle
from io import BytesIO

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import InputTags
from sklearn.utils.estimator_checks import estimator_checks_generator

from molattn.api import train
from molattn.chem import parse_smiles
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
        places = np.floor(rows * 20).astype(int) % len(UNITS) ** 2
        pairs = [[divmod(place, len(UNITS)) for place in row] for row in places]
        return ["F" + "".join(UNITS[a] + UNITS[b] for a, b in row) for row in pairs]


class Regressor(ReadsNumbers, MolAttnRegressor):
    def predict(self, X):
        return super().predict(self._smiles(X))


class Classifier(ReadsNumbers, MolAttnClassifier):
    def predict_proba(self, X):
        return super().predict_proba(self._smiles(X))


NUMBERS = "is about columns of numbers; SMILES are one column of texts"
EXPECTED_FAILURES = {
    "check_complex_data": NUMBERS,
    "check_estimators_empty_data_messages": NUMBERS,
    "check_estimators_nan_inf": NUMBERS,
    "check_fit2d_predict1d": NUMBERS,
    "check_n_features_in": NUMBERS,
    "check_n_features_in_after_fitting": NUMBERS,
    "check_sample_weight_equivalence_on_dense_data": (
        "a row of weight 2 is in one batch of an epoch, two rows are in two of them"
    ),
}
CHECKS = [
    pair
    for kind in (Regressor, Classifier)
    for pair in estimator_checks_generator(
        kind(**TINY), expected_failed_checks=EXPECTED_FAILURES, mark="xfail"
    )
]


@pytest.mark.parametrize("estimator,check", CHECKS)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


# The same and more, with SMILES.


def fitted(kind=MolAttnRegressor, y=CARBONS, X=SMILES, **options):
    return kind(**TINY | options).fit(X, y)


def test_it_learns():
    options = {"width": 16, "heads": 2, "epochs": 40, "batch_size": 8, "learning_rate": 0.01}
    options |= {"readout": "sum", "dropout": 0.0}
    assert fitted(**options).score(SMILES, CARBONS) > 0.9
    assert fitted(MolAttnClassifier, RING, **options).score(SMILES, RING) > 0.95


@pytest.mark.parametrize(
    "X",
    [
        tuple(SMILES),
        np.array(SMILES),
        np.array(SMILES, dtype=object)[:, None],
        pd.Series(SMILES, index=range(5, 29)),
        pd.DataFrame({"molecule": SMILES}),
    ],
    ids=["tuple", "array", "column", "Series", "frame"],
)
def test_smiles_come_in_any_form(X):
    expected = fitted().predict(SMILES)
    estimator = fitted(X=X)
    np.testing.assert_array_equal(estimator.predict(X), expected)
    assert estimator.n_features_in_ == 1
    assert getattr(estimator, "feature_names_in_", None) == (
        ["molecule"] if isinstance(X, pd.DataFrame) else None
    )


def test_predictions_depend_on_no_other_row():
    for method in (
        fitted().predict,
        fitted(MolAttnClassifier, RING).predict_proba,
    ):
        whole = method(SMILES)
        order = np.random.default_rng(0).permutation(len(SMILES))
        np.testing.assert_allclose(method(np.array(SMILES)[order]), whole[order], rtol=1e-5)
        alone = np.concatenate([method([text]) for text in SMILES[:3]])
        np.testing.assert_allclose(alone, whole[:3], rtol=1e-5)


def test_fitting_again_gives_the_same_and_changes_no_input():
    y, weights = CARBONS.copy(), np.linspace(0.0, 1.0, len(SMILES))
    estimator = MolAttnRegressor(**TINY)
    before = estimator.get_params()
    first = estimator.fit(SMILES, y, weights).predict(SMILES)
    np.testing.assert_array_equal(estimator.fit(SMILES, y, weights).predict(SMILES), first)
    assert estimator.get_params() == before
    np.testing.assert_array_equal(y, CARBONS)
    unweighted = estimator.fit(SMILES, y).predict(SMILES)
    other = clone(estimator).set_params(random_state=1).fit(SMILES, y).predict(SMILES)
    for different in (unweighted, other):
        assert not np.array_equal(different, first)


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
    for one, other in zip(
        with_them.model_.state_dict().values(), without.model_.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    known, expected = with_them.model_.uncertainty, without.model_.uncertainty
    assert known.calibration.to_dict() == expected.calibration.to_dict()
    molecules = [one.molecules.fingerprints for one in (known, expected)]
    assert [*map(list, molecules[0])] == [*map(list, molecules[1])]
    if kind is MolAttnClassifier:
        assert with_them.classes_.tolist() == without.classes_.tolist() == ["chain", "ring"]


def test_rows_are_named_by_their_places_among_all_that_were_given():
    weights = np.r_[0.0, 0.0, np.ones(len(SMILES) - 2)]
    odd = ["not a molecule", *SMILES[1:5], "C(C", *SMILES[6:]]
    with pytest.raises(InputError, match=r"row 6 \(counted from 1\): 'C\(C'.*1 of 24 rows"):
        MolAttnRegressor(**TINY).fit(odd, CARBONS, weights)


@pytest.mark.parametrize("kind,y", [(MolAttnRegressor, CARBONS), (MolAttnClassifier, RING)])
@pytest.mark.parametrize("through", ["pickle", "joblib"])
def test_it_survives_being_written_without_pickled_modules(kind, y, through):
    estimator = fitted(kind, y)
    file = BytesIO()
    (pickle if through == "pickle" else joblib).dump(estimator, file)
    assert b"torch.nn" not in file.getvalue()
    assert b"MolAttnConfig" not in file.getvalue()
    file.seek(0)
    again = (pickle if through == "pickle" else joblib).load(file)
    np.testing.assert_array_equal(again.predict(SMILES), estimator.predict(SMILES))
    assert again.get_params() == estimator.get_params()
    assert isinstance(again.model_, torch.nn.Module)
    ours, theirs = (e.model_.predict_interval(SMILES, level=0.5) for e in (estimator, again))
    for mine, its in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, its)


def test_targets_may_have_the_names_of_our_own_columns():
    y = pd.DataFrame({"weight": CARBONS, "smiles": -CARBONS})
    odd = MolAttnRegressor(**TINY).fit(SMILES, y, np.ones(len(SMILES)))
    plain = MolAttnRegressor(**TINY).fit(SMILES, y.set_axis(["a", "b"], axis=1))
    np.testing.assert_allclose(odd.predict(SMILES), plain.predict(SMILES), rtol=1e-5)


def test_parameters_are_the_options_of_a_run():
    parameters = MolAttnRegressor().get_params()
    assert parameters == MolAttnClassifier().get_params()
    options = {"epochs", "learning_rate", "width", "readout", "loss", "validation_size"}
    assert options <= parameters.keys()
    assert parameters.keys() <= {*TrainConfig.options(), "random_state", "attention_score"}
    assert repr(MolAttnRegressor(epochs=3)) == "MolAttnRegressor(epochs=3)"
    with pytest.raises(TypeError, match="unknown parameter 'epoch'"):
        MolAttnRegressor(epoch=3)
    for name in ("devices", "num_nodes"):  # only the command line starts processes
        with pytest.raises(TypeError, match=f"unknown parameter '{name}'"):
            MolAttnRegressor(**{name: 2})


@pytest.mark.parametrize(
    "options,words",
    [
        ({"epochs": 0}, "epochs: got 0"),
        ({"random_state": -1}, "random_state: got -1"),
        ({"attention_score": "x"}, "attention_score: got 'x'"),
        ({"validation_size": 0.0}, "validation_size: got 0.0, expected a number above 0, as the"),
        ({"validation_size": 1.0}, "validation_size: got 1.0, expected"),
    ],
)
def test_options_are_named_as_parameters(options, words):
    with pytest.raises(InputError, match=f"^{words}") as caught:
        fitted(**options)
    assert "--" not in str(caught.value)
    assert "fold" not in str(caught.value)


def test_the_validation_rows_may_be_most_rows():
    assert fitted(validation_size=0.9).predict(SMILES).shape == (24,)


@pytest.mark.parametrize(
    "y",
    [
        np.array(["a", np.nan, "b"], dtype=object),
        ["a", None, "b"],
        ("a", np.nan, "b"),
        [0.0, np.nan, 1.0],
        pd.Series(["a", pd.NA, "b"], dtype="string"),
        pd.Series([0, pd.NA, 1], dtype="Int64"),
        pd.DataFrame({"y": ["a", None, "b"]}),
    ],
    ids=["array", "list", "tuple", "numbers", "string", "Int64", "frame"],
)
@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
def test_a_missing_class_is_named_by_its_row(y):
    with pytest.raises(InputError, match=r"^y, row 2: the label is missing$"):
        fitted(MolAttnClassifier, y, SMILES[:3])


def test_several_targets_with_missing_labels():
    y = np.column_stack([CARBONS, -CARBONS])
    y[::2, 1] = np.nan
    estimator = fitted(y=pd.DataFrame(y, columns=["carbons", "less"]))
    assert estimator.predict(SMILES[:3]).shape == (3, 2)
    assert estimator.model_.config.targets == ("carbons", "less")
    with pytest.raises(ValueError, match="NaN"):
        fitted(y=y[:, 1])
    y[4] = np.nan
    with pytest.raises(InputError, match=r"row 5 .*: no target has a value"):
        fitted(y=y)


@pytest.mark.parametrize(
    "y,classes",
    [
        (RING, ["chain", "ring"]),
        (RING == "ring", [False, True]),
        (CARBONS.astype(int) % 3 - 1, [-1, 0, 1]),
        (np.array(["active", "Nan", "unknown"])[np.arange(24) % 3], ["Nan", "active", "unknown"]),
    ],
    ids=["texts", "booleans", "numbers", "words"],
)
def test_classes_keep_their_type_and_order(y, classes):
    estimator = fitted(MolAttnClassifier, y)
    assert estimator.classes_.tolist() == classes
    assert estimator.model_.config.tasks[0].classes == tuple(map(str, classes))
    chances = estimator.predict_proba(SMILES)
    assert chances.shape == (24, len(classes))
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-6)
    likeliest = estimator.classes_[chances.argmax(axis=1)]
    np.testing.assert_array_equal(estimator.predict(SMILES), likeliest)


@pytest.mark.parametrize(
    "positive, given", [("ring", {}), ("no ring", {"positive_class": "no ring"})]
)
def test_the_positive_class_is_that_of_a_run(positive, given):
    y = np.where(RING == "ring", "ring", "no ring")
    estimator = fitted(MolAttnClassifier, y, **given)
    run = train(pd.DataFrame({"smiles": SMILES, "y": y}), "y", baselines=False, **TINY, **given)
    (task,) = estimator.model_.config.tasks
    assert task.classes == run.model.config.tasks[0].classes
    assert task.columns == ("y_predicted", f"y_probability_{positive}")
    assert estimator.classes_.tolist() == ["no ring", "ring"]
    place = estimator.classes_.tolist().index(positive)
    np.testing.assert_allclose(
        estimator.predict_proba(SMILES)[:, place], estimator.model_.predict(SMILES)[:, 0], rtol=1e-6
    )
    with pytest.raises(InputError, match="positive_class"):
        fitted(MolAttnClassifier, y, positive_class="rings")
    with pytest.raises(InputError, match="positive_class"):
        fitted(positive_class="ring")


def test_what_is_wrong_is_named():
    estimator = MolAttnRegressor(**TINY)
    with pytest.raises(NotFittedError):
        estimator.predict(SMILES)
    with pytest.raises(InputError, match=r"X, row 2 \(counted from 1\): 'C\(': .*; 1 of 24 rows"):
        estimator.fit([SMILES[0], "C(", *SMILES[2:]], CARBONS)
    with pytest.raises(InputError, match="got one molecule, expected a list"):
        estimator.fit("CCO", [1.0])
    with pytest.raises(InputError, match="DataFrame with 2 columns"):
        estimator.fit(pd.DataFrame({"a": SMILES, "b": SMILES}), CARBONS)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        estimator.fit(SMILES, CARBONS[:5])
    with pytest.raises(InputError, match="1 class, expected two"):
        fitted(MolAttnClassifier, np.zeros(24))
    estimator.fit(pd.DataFrame({"smiles": SMILES}), CARBONS)
    with pytest.raises(SmilesError, match="position 1"):
        estimator.predict(["C", "C("])
    with pytest.raises(InputError, match="got the column 'name', expected 'smiles'"):
        estimator.predict(pd.DataFrame({"name": SMILES}))


def canonical(smiles):
    from rdkit.Chem import MolToSmiles

    return [MolToSmiles(parse_smiles(text)) for text in smiles]


def test_pipelines_are_cross_validated_and_searched():
    pipeline = make_pipeline(FunctionTransformer(canonical), MolAttnRegressor(**TINY))
    scores = cross_val_score(pipeline, SMILES, CARBONS, cv=3, error_score="raise")
    assert scores.shape == (3,)
    assert np.isfinite(scores).all()
    options = {"molattnregressor__width": [4, 8]}
    search = GridSearchCV(pipeline, options, cv=2, error_score="raise").fit(SMILES, CARBONS)
    best = search.best_estimator_[-1]
    assert best.model_.config.network.width == search.best_params_["molattnregressor__width"]


def test_rdkit_molecules_are_fitted_and_predicted_as_their_smiles():
    mols = [Chem.AddHs(Chem.MolFromSmiles(text)) for text in SMILES]
    expected = MolAttnRegressor(**TINY).fit(SMILES, CARBONS).predict(SMILES)
    for molecules in (mols, pd.DataFrame({"ROMol": mols}), np.array(mols, dtype=object)):
        found = MolAttnRegressor(**TINY).fit(molecules, CARBONS).predict(molecules)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    classifier = MolAttnClassifier(**TINY).fit(pd.Series(mols), RING)
    assert classifier.predict(mols).shape == (24,)
    bad = [mols[0], Chem.MolFromSmiles("CC", sanitize=False), *mols[2:]]
    with pytest.raises(InputError, match=r"row 2 \(counted from 1\): 'CC': .* not sanitized"):
        MolAttnRegressor(**TINY).fit(bad, CARBONS)
    with pytest.raises(
        InputError, match=r"row 2 \(counted from 1\): '': the value is missing; 1 of"
    ):
        MolAttnRegressor(**TINY).fit([mols[0], None, *mols[2:]], CARBONS)
    with pytest.raises(InputError, match=r"got one molecule, expected a list: \['CCO'\]"):
        classifier.predict(Chem.MolFromSmiles("CCO"))


def test_molecules_are_standardized():
    salts = [f"{text}.[Na+].[Cl-]" for text in SMILES]
    found, expected = (
        MolAttnRegressor(**TINY, standardize=True).fit(molecules, CARBONS).predict(molecules)
        for molecules in (salts, SMILES)
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("make", [pd.Series, pd.array, pd.Index])
def test_large_classes_of_nullable_integers_are_told_apart(make):
    labels = make([2**60, 2**60 + 1] * 10, dtype="Int64")
    found = MolAttnClassifier(**TINY).fit(["CCO", "CCC"] * 10, labels).classes_
    assert found.tolist() == [2**60, 2**60 + 1]


def test_classes_of_several_types_are_refused():
    labels = pd.Series([1, "1", 2] * 4).astype("category")
    with pytest.raises((TypeError, ValueError)):
        MolAttnClassifier(**TINY).fit(["CCO", "CCC", "CCN"] * 4, labels)
