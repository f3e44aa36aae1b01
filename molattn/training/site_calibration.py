"""What a training keeps of labels of atoms and bonds: intervals, and elements that had some."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.data.dataset import Molecules
from molattn.model.model import MolAttn
from molattn.model.sites import SiteCalibration, SiteLabeled, site_kinds
from molattn.task import Level
from molattn.utils.console import print_line


def keep_labeled(model: MolAttn, training: Molecules) -> None:
    """Let a model predict the kinds of atoms and bonds that have labels in its training."""
    labeled = {}
    for level, labels in training.sites.items():
        kinds = site_kinds(training.records, level, model.config.featurizer)
        for task, values in zip(labels.tasks, labels.labels_or_bounds.T, strict=True):
            labeled[task.name] = tuple(np.unique(kinds[~np.isnan(values)]).tolist())
    model.site_calibration = SiteCalibration({}, labeled)


def calibrate_sites(
    model: MolAttn,
    molecules: Molecules,
    outputs: Mapping[Level, NDArray[np.float64]],
    console: Console | None,
) -> None:
    """Calibrate the intervals of atoms and bonds by outputs for molecules that were held out."""
    labels: dict[Level, SiteLabeled] = {
        level: SiteLabeled(
            *(labels.targets, labels.molecule),
            site_kinds(molecules.records, level, model.config.featurizer),
        )
        for level, labels in molecules.sites.items()
    }
    fitted = SiteCalibration.fit(model.config, outputs, labels)
    labeled = model.site_calibration.labeled if model.site_calibration else {}
    model.site_calibration = fitted._replace(labeled=labeled)
    for line in fitted.lines():
        print_line(console, line)
