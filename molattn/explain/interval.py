"""Between which values the truth lies, of what is explained."""

import math

import numpy as np

from .subject import Subject

__all__ = ["LEVEL", "interval_of"]

LEVEL = 0.9
"""The usual probability that the truth lies in an interval."""


def interval_of(subject: Subject, level: float = LEVEL) -> tuple[float, float] | tuple[None, None]:
    """Return the ends of a prediction's interval; None of a class, or where nothing is known.

    Args:
        subject: The molecule.
        level: Probability with which the truth lies in the interval.
    """
    model, task = subject.model, subject.output.task
    known = model.uncertainty
    if known is None or task.kind != "regression":
        return None, None
    widths = known.calibration.half_widths(np.array([subject.similarity]), level)
    half = float(widths[0, model.config.tasks.index(task)])
    middle = subject.prediction
    return (middle - half, middle + half) if math.isfinite(half) else (None, None)
