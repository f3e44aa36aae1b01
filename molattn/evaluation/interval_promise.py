"""What prediction intervals of a run promise, in words."""

from molattn.config import DataConfig

__all__ = ["interval_promise", "is_exchangeable", "test_rows"]

_SPLITS = {
    "scaffold": "other scaffolds than those",
    "cluster": "other clusters than those",
    "order": "a later part of the order than those",
}


def is_exchangeable(data: DataConfig) -> bool:
    """Return whether test rows are drawn as those that the intervals are calibrated on."""
    return data.split_column is None and data.split in (None, "random")


def test_rows(data: DataConfig) -> str:
    """Return how test rows that are not exchangeable are chosen, as a predicate."""
    if data.split_column is not None:
        return "are chosen by a column of the table"
    return f"are of {_SPLITS[str(data.split)]} that the intervals are calibrated on"


def interval_promise(data: DataConfig, *, tested: bool = True) -> str:
    """Return what the intervals of a run promise for its test rows, if any, and what not."""
    if data.validation_size == 0.0:
        by = "the predictions of the other folds' models for the rows that they have not seen"
    else:
        by = "the validation rows"
    text = f"Intervals are calibrated on {by}. "
    if not tested:
        return (
            f"{text}Their nominal coverage is promised on average for molecules that are drawn as "
            "those (exchangeable), and nothing for others, such as a new chemical series. There "
            "are no test rows on which it could be measured."
        )
    if not is_exchangeable(data):
        return (
            f"{text}Their nominal coverage is promised only for molecules that are drawn as those "
            f"(exchangeable). The test rows {test_rows(data)}: no coverage is promised for "
            "them, and the measured coverage shows what the intervals are worth for such molecules."
        )
    if data.validation_size == 0.0:
        return (
            f"{text}For molecules drawn as those of the table (exchangeable) and a model that "
            "hardly depends on single rows, the coverage is the nominal one. The measured "
            "coverage shows whether it is."
        )
    return (
        f"{text}The test rows are drawn at random as those are (exchangeable), so that the nominal "
        "coverage is promised on average over such molecules. Nothing is promised for other "
        "molecules, such as a new chemical series."
    )
