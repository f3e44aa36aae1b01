"""What a training keeps of labels of atoms and bonds: intervals, and which atoms had some."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.data.dataset import Molecules
from molattn.model.environments import site_environments
from molattn.model.model import MolAttn
from molattn.model.sites import SiteCalibration, SiteLabeled, site_kinds
from molattn.task import Level
from molattn.utils.console import print_line


def keep_labeled(model: MolAttn, training: Molecules) -> None:
    """Let a model predict the kinds of atoms and bonds that have labels in its training.

    It also keeps their environments.
    """
    labeled = {}
    environments = {}
    for level, labels in training.sites.items():
        kinds = site_kinds(training.records, level, model.config.featurizer)
        hashes = site_environments(training.records, level)
        for task, values in zip(labels.tasks, labels.labels_or_bounds.T, strict=True):
            labeled[task.name] = tuple(np.unique(kinds[~np.isnan(values)]).tolist())
            if task.kind == "regression":
                environments[task.name] = np.unique(hashes[~np.isnan(values)])
    model.site_calibration = SiteCalibration({}, labeled, environments)


def calibrate_sites(
    model: MolAttn,
    molecules: Molecules,
    outputs: Mapping[Level, NDArray[np.float64]],
    console: Console | None,
    *,
    of_folds: bool = False,
) -> None:
    """Calibrate the intervals of atoms and bonds by outputs for molecules that were held out.

    Intervals by outputs of the models of folds do not depend on environments.
    """
    before = model.site_calibration or SiteCalibration({})
    if of_folds:
        before = before._replace(environments={})
    labels: dict[Level, SiteLabeled] = {
        level: SiteLabeled(
            *(labels.targets, labels.molecule),
            site_kinds(molecules.records, level, model.config.featurizer),
            site_environments(molecules.records, level),
        )
        for level, labels in molecules.sites.items()
    }
    model.site_calibration = before.fit(model.config, outputs, labels)
    for line in model.site_calibration.lines():
        print_line(console, line)
