"""Between which values the truth lies, of what is explained."""

import math

from .subject import Subject

__all__ = ["LEVEL", "interval_of"]

LEVEL = 0.9
"""The usual probability that the truth lies in an interval."""


def interval_of(
    subject: Subject, prediction: float, level: float = LEVEL
) -> tuple[float, float] | tuple[None, None]:
    """Return the ends of a prediction's interval; None of a class, or where nothing is known.

    Args:
        subject: The molecule.
        prediction: What is predicted of it.
        level: Probability with which the truth lies in the interval.
    """
    model, task = subject.model, subject.output.task
    known = model.uncertainty
    if known is None or task.kind != "regression":
        return None, None
    similarity = known.molecules.similarity([subject.smiles])
    widths = known.calibration.half_widths(similarity, level)
    half = float(widths[0, model.config.tasks.index(task)])
    return (prediction - half, prediction + half) if math.isfinite(half) else (None, None)
