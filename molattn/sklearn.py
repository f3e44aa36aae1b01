"""scikit-learn estimators for molecules."""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import (
    assert_all_finite,
    check_array,
    check_consistent_length,
    check_random_state,
    column_or_1d,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from molattn.chem.parse import Molecule, written
from molattn.config import TrainConfig
from molattn.data.dataset import TrainingTable
from molattn.data.labels import ordered_classes
from molattn.data.splitting import split_rows
from molattn.data.table import free_name
from molattn.data.table.typed import FrameTable
from molattn.errors import InputError, quoted
from molattn.model.artefact import ModelFiles
from molattn.model.model import MolAttn
from molattn.training.resolve import load_pretrained
from molattn.training.run import TrainingJob, fit_model, read_rows
from molattn.utils.devices import exclusive

Rows = ArrayLike | None
_SECTIONS = ("network", "training", "fine_tuning", "gaussian_process")
# Of the options of the data those that do not name columns, files or test rows.
_DATA_OPTIONS = (
    *("descriptors", "featurizer", "morgan_counts", "positive_class"),
    *("standardize", "target_transform", "task_weights", "validation_size", "auxiliary_weight"),
)
# Of the others those of run folders and of several processes, which only the command starts.
_EXCLUDED = ("seed", "checkpoint_steps", "devices")
_RENAMED = {"seed": "random_state", "score": "attention_score"}  # `score` is a method
_OPTIONS = {
    name: _RENAMED.get(name, name)
    for name, option in TrainConfig.options().items()
    if (option.section in _SECTIONS and name not in _EXCLUDED) or name in _DATA_OPTIONS
}
"""Name of each parameter of an estimator, by the name of its option."""
_DEFAULTS = {name: TrainConfig.options()[option].default for option, name in _OPTIONS.items()}


class _MolAttnEstimator(BaseEstimator):
    """Base class of the estimators: parameters from options, molecules as input."""

    def __init__(self, *, random_state: Any = 0, **options: Any) -> None:
        if unknown := sorted(options.keys() - _DEFAULTS.keys()):
            raise TypeError(f"{type(self).__name__}: unknown parameter {unknown[0]!r}")
        self.random_state = random_state
        for name, default in _DEFAULTS.items():
            setattr(self, name, options.get(name, default))

    # scikit-learn, `help` and notebooks read it; each option is declared once, in its section.
    __init__.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
                for name, default in {**_DEFAULTS, "random_state": 0}.items()
            ),
        ]
    )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Hold the model as the content of its files, not as pickled classes."""
        state: Any = dict(super().__getstate__())  # pyright: ignore
        if "model_" in state:
            state["model_"] = dict(state["model_"].to_files().content)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "model_" in state:
            files = ModelFiles(Path(), state["model_"])
            state = {**state, "model_": MolAttn.from_files(files)}
        super().__setstate__(state)

    def _fit(
        self,
        X: Any,
        targets: NDArray[np.float64],
        names: Sequence[str],
        classes: Sequence[str],
        weights: NDArray[np.float64] | None,
        auxiliary: Any,
    ) -> None:
        """Train on the rows that have a weight above 0, as if the others did not exist."""
        molecules, column = _read_molecules(X)
        check_consistent_length(molecules, targets, weights, auxiliary)
        smiles = free_name("smiles", names)
        weight = free_name("weight", names)
        frame = pd.DataFrame({smiles: molecules, **dict(zip(names, targets.T, strict=True))})
        labels = pd.DataFrame(auxiliary).reset_index(drop=True)
        labels.columns = [free_name(f"auxiliary_{k}", names) for k in range(labels.shape[1])]
        frame = frame.join(labels)
        options = {name: getattr(self, parameter) for name, parameter in _OPTIONS.items()}
        options |= {"smiles_column": smiles, "target_columns": names, "seed": self._seed()}
        options |= {"auxiliary_columns": [*labels.columns], "test_size": 0.0}  # no test rows
        options["task"] = {0: "regression", 2: "binary"}.get(len(classes), "multiclass")
        rows = np.arange(len(frame))
        if weights is not None:
            frame[weight] = weights
            rows = np.flatnonzero(weights)
            options["weight_column"] = weight
        try:
            config = TrainConfig.from_options("", options)
            self._train(FrameTable(frame.iloc[rows], (rows + 1).tolist()), config, classes)
        except InputError as error:
            error.option = _RENAMED.get(error.option or "", error.option)
            raise
        self.n_iter_ = max((len(history.curve) for history in self.histories_), default=0)
        self.n_features_in_ = 1
        vars(self).pop("feature_names_in_", None)
        if column is not None:
            self.feature_names_in_ = np.array([column], dtype=object)

    @exclusive()
    def _train(self, source: FrameTable, config: TrainConfig, classes: Sequence[str]) -> None:
        config, pretrained = load_pretrained(config)
        data = config.data
        if len(classes) == 2:  # of which the table holds the indices
            *_, positive = ordered_classes(classes, *data.positive_class)
            data = replace(data, positive_class=(str(classes.index(positive)),))
        table = read_rows(replace(config, data=data), frame=source)
        _check_rows(table)
        if classes:
            (task,) = table.tasks
            names = tuple(classes[int(index)] for index in task.classes)
            table = replace(table, tasks=(replace(task, classes=names),))
        splits = split_rows(table, data, config.training.seed)
        job = TrainingJob(config, table, splits, pretrained)
        self.model_, self.histories_, *_ = fit_model(job)

    def _predict(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        molecules, column = _read_molecules(X)
        expected = getattr(self, "feature_names_in_", None)
        if column is not None and expected is not None and column != expected[0]:
            raise InputError(f"X: got the column {quoted(column)}, expected {quoted(expected[0])}")
        return self.model_.predict(molecules)

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))


class MolAttnRegressor(RegressorMixin, _MolAttnEstimator):
    """A scikit-learn regressor for SMILES or RDKit molecules.

    Its parameters are the options of ``molattn train`` under their Python names (``epochs``,
    ``width``, ``learning_rate``, ``loss``, ...: see :class:`molattn.config.NetworkConfig` and
    :class:`molattn.config.SupervisedConfig`), except that ``seed`` is called ``random_state`` and
    ``score`` is called ``attention_score``. ``fit`` holds out a random fraction ``validation_size``
    of the molecules for validation. These are used to calibrate the model and, with
    ``checkpoint="best"``, to select the epoch.

    Args:
        random_state: Seed of the validation split, the initial weights and the order of the rows;
            None = a random seed.
        options: Options of the network, the training and the validation split.

    Attributes:
        model_: The trained :class:`molattn.MolAttn`.
        histories_: Losses of each member by epoch (:class:`molattn.training.run_folder.History`).
        n_iter_: Number of epochs; for an ensemble, the largest among its members.
        n_features_in_: 1, the molecule.
        feature_names_in_: Name of the column of molecules, if ``X`` was a DataFrame in ``fit``.

    Example:
        >>> smiles = ["C" * n for n in range(1, 13)]
        >>> regressor = MolAttnRegressor(epochs=2, width=8, heads=2, layers=1)
        >>> regressor.fit(smiles, range(12)).predict(["CCO", "CCC"]).shape
        (2,)
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: ArrayLike, sample_weight: Rows = None, auxiliary: Rows = None) -> Self:
        """Train the model.

        Args:
            X: n SMILES or RDKit molecules: a list, an array, a Series, or a DataFrame with one
                column.
            y: ``[n]``, or ``[n, T]`` for several targets, with NaN for missing labels.
            sample_weight: Weights of the rows in training ``[n]``; rows of weight 0 are ignored.
            auxiliary: Labels of A other assays ``[n, A]``, NaN where missing, which are learned
                and not predicted. A row that has some may have no other label.

        Raises:
            InputError: An invalid molecule (with its row) or option.
            ValueError: Wrong shapes or labels.
        """
        y = _given(y)
        names = getattr(y, "columns", None)
        options: Any = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
        values: Any = check_array(y, ensure_2d=False, input_name="y", **options)
        if values.ndim == 1 and auxiliary is None:
            assert_all_finite(values, input_name="y")
        targets = values.reshape(len(values), -1)
        if names is None:
            names = ["y"] if targets.shape[1] == 1 else [f"y{k}" for k in range(targets.shape[1])]
        weights = _weights(sample_weight, len(targets))
        self._fit(X, targets, [str(name) for name in names], (), weights, auxiliary)
        self._is_matrix = values.ndim > 1
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return predictions in the shape of the labels, ``[n]`` or ``[n, T]``."""
        prediction = self._predict(X)
        return prediction if self._is_matrix else prediction[:, 0]


class MolAttnClassifier(ClassifierMixin, _MolAttnEstimator):
    """A scikit-learn classifier, with two or more classes, for SMILES or RDKit molecules.

    It has the parameters, the attributes and the validation split of :class:`MolAttnRegressor`, and
    ``classes_``, the sorted labels. Of two classes the model has the probability of the positive
    one, which ``positive_class`` names, as text.
    """

    def fit(self, X: Any, y: ArrayLike, sample_weight: Rows = None, auxiliary: Rows = None) -> Self:
        """Train the model, as :meth:`MolAttnRegressor.fit` does.

        The n labels are of two or more classes, as strings or numbers. With ``auxiliary`` labels
        None and NaN are missing ones.

        Raises:
            InputError: An invalid molecule or a missing label (with its row), labels of a single
                class, or an invalid option.
        """
        values = np.asarray(_given(y), dtype=object)
        missing = pd.isna(values).ravel()
        if missing.any() and auxiliary is None:
            raise InputError(f"y, row {missing.argmax() + 1}: the label is missing")
        kind = getattr(getattr(y, "dtype", None), "numpy_dtype", None)
        # Of pandas types such as Int64 scikit-learn would make floats.
        if kind is not None or missing.any():
            y = np.array(values.ravel()[~missing].tolist(), dtype=kind)
        labels: Any = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        assert_all_finite(labels, input_name="y")
        weights = _weights(sample_weight, len(missing))
        classes = np.unique(labels if weights is None else labels[weights[~missing] > 0.0])
        if len(classes) < 2:
            raise InputError(f"y: got {len(classes)} class, expected two or more")
        codes = np.full(len(missing), np.nan)
        codes[~missing] = np.searchsorted(classes, labels)
        self._fit(X, codes[:, None], ["y"], [str(label) for label in classes], weights, auxiliary)
        self.classes_ = classes
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each of ``classes_``, ``[n, len(classes_)]``."""
        probabilities = self._predict(X)
        (task,) = self.model_.config.tasks
        if task.kind == "binary":
            probabilities = np.hstack([1.0 - probabilities, probabilities])
        return probabilities[:, [task.classes.index(str(label)) for label in self.classes_]]

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each molecule ``[n]``."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most_probable]


def _check_rows(table: TrainingTable) -> None:
    """Check that all rows can be used, and that there are two molecules or more."""
    if faults := [*table.skipped, *table.unreadable]:
        first = faults[0]
        raise InputError(
            f"X, row {first.line} (counted from 1): {quoted(first.smiles)}: {first.reason}; "
            f"{len({row.line for row in faults})} rows cannot be used; remove or correct them"
        )
    if len({record.smiles for record in table.records}) < 2:
        raise InputError(
            f"X: got only one molecule (n_samples={len(table.rows)}), expected two or more"
        )


def _given(y: Any) -> Any:
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    return y


def _weights(sample_weight: Any, count: int) -> NDArray[np.float64] | None:
    if sample_weight is None:
        return None
    options: Any = {"ensure_2d": False, "dtype": np.float64, "input_name": "sample_weight"}
    weights: Any = check_array(sample_weight, **options)
    if weights.shape != (count,):
        raise InputError(f"sample_weight: got shape {list(weights.shape)}, expected [{count}]")
    if not (weights.min() >= 0.0 and weights.any()):
        raise InputError("sample_weight: expected no negative weight, and not all of them zero")
    return weights


def _read_molecules(X: Any) -> tuple[list[Any], str | None]:
    """Return molecules as a list, and the name of their column in a DataFrame."""
    if isinstance(X, Molecule):
        raise InputError(f"X: got one molecule, expected a list: [{quoted(written(X))}]")
    if issparse(X):
        raise InputError("X: got a sparse matrix, expected molecules of shape [n]")
    column = str(X.columns[0]) if isinstance(X, pd.DataFrame) and X.shape[1] == 1 else None
    values = np.asarray(X, dtype=object)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        shape = list(values.shape)
        raise InputError(f"X: got an array of shape {shape}, expected molecules of shape [n]")
    return values.tolist(), column
