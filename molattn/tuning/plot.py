"""Figure of a search for options."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

__all__ = ["study_plot"]


def study_plot(losses: Sequence[float | None], importance: Mapping[str, float]) -> Figure:
    """Plot the validation loss of each trial of a search, and what each option matters.

    Args:
        losses: Of each trial in order, None where it came to no end.
        importance: Part of the losses' variance that each option explains, or nothing.
    """
    figure = Figure(figsize=(10 if importance else 6, 4), layout="constrained")
    axes = figure.add_subplot(1, 2 if importance else 1, 1)
    known = [(place, loss) for place, loss in enumerate(losses, start=1) if loss is not None]
    places, values = (np.array(column) for column in zip(*known, strict=True))
    axes.scatter(places, values, s=16, color="#0072b2", label="trial")
    lowest = np.minimum.accumulate(values)
    axes.step(places, lowest, where="post", color="#d55e00", label="best so far")
    axes.set(xlabel="trial", ylabel="validation loss", title="Trials", yscale="log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0, 7.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False)
    if importance:
        bars = figure.add_subplot(1, 2, 2)
        names = sorted(importance, key=lambda name: importance[name])
        bars.barh(names, [importance[name] for name in names], color="#767676")
        bars.set(xlabel="part of the variance explained", title="Importance")
    return figure
