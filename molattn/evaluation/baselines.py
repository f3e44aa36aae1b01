"""Baselines: a constant, and a random forest on fingerprints and descriptors."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from molattn.task import Task, output_slices

__all__ = ["constant_prediction", "forest_prediction"]

_TREES = 200
_MAX_FEATURES = 0.3  # fraction at each split; as accurate as all, in a third of the time


def constant_prediction(
    tasks: Sequence[Task], targets: NDArray[np.float64], rows: int
) -> NDArray[np.float64]:
    """Predict the mean of the training labels, or the frequency of each class, for all test rows.

    Labels are ``[n, T]``, NaN where missing; each task has some. The result is ``[rows, outputs]``.
    """
    outputs = []
    for index, task in enumerate(tasks):
        labels = targets[~np.isnan(targets[:, index]), index]
        if task.kind == "multiclass":
            outputs += [np.mean(labels == label) for label in range(len(task.classes))]
        else:
            outputs.append(labels.mean())
    return np.tile(np.asarray(outputs, dtype=np.float64), (rows, 1))


def forest_prediction(
    tasks: Sequence[Task],
    features: NDArray[np.float32],
    targets: NDArray[np.float64],
    others: NDArray[np.float32],
    seed: int,
) -> NDArray[np.float64]:
    """Train a random forest of 200 trees on each task and predict other molecules.

    Features are ``[n, F]`` and those of the others ``[m, F]``; labels ``[n, T]``, NaN where
    missing; each task has some. The result is ``[m, outputs]``: values in the units of the targets,
    probabilities of classes.
    """
    prediction = np.zeros((len(others), sum(task.num_outputs for task in tasks)))
    for index, (task, part) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
        known = ~np.isnan(targets[:, index])
        labels = targets[known, index]
        if task.kind == "regression":
            forest = RandomForestRegressor(
                _TREES, max_features=_MAX_FEATURES, n_jobs=-1, random_state=seed
            ).fit(features[known], labels)
            # One thread, as several would sum the trees in varying order.
            prediction[:, part.start] = forest.set_params(n_jobs=1).predict(others)
            continue
        forest = RandomForestClassifier(_TREES, n_jobs=-1, random_state=seed)
        probabilities = np.zeros((len(others), len(task.classes)))
        seen = forest.fit(features[known], labels.astype(int)).classes_
        probabilities[:, seen] = forest.set_params(n_jobs=1).predict_proba(others)
        prediction[:, part] = probabilities[:, 1:] if task.kind == "binary" else probabilities
    return prediction
