"""What the file of a Gaussian process holds."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from molattn.model.config import MolAttnConfig

__all__ = ["check_tensors"]


def check_tensors(
    tensors: Mapping[str, NDArray[Any]],
    config: MolAttnConfig,
    embedding_width: int,
) -> None:
    """Check the arrays of a Gaussian process against the config of its model.

    Args:
        tensors: The arrays by name.
        config: Of the model.
        embedding_width: Of the model.

    Raises:
        ValueError: An array that is missing or unknown, of another type or shape, or with a value
            that it cannot have.
        KeyError: An array is missing.
    """
    expected = _expected(tensors, config, embedding_width)
    for name in sorted(tensors.keys() ^ expected.keys()):
        raise ValueError(f"{'unknown' if name in tensors else 'missing'} array {name!r}")
    for name, (kind, shape) in expected.items():
        found = tensors[name]
        if found.dtype != kind or found.shape != shape:
            got, wanted = f"{found.dtype} {[*found.shape]}", f"{np.dtype(kind)} {[*shape]}"
            raise ValueError(f"array {name!r}: got {got}, expected {wanted}")
        if not _is_valid(name.rpartition(".")[2], found):
            raise ValueError(f"array {name!r} has values that it cannot have")
        if name.endswith(".starts") and found[-1] != len(tensors[name[:-6] + "counts"]):
            raise ValueError(f"array {name!r} does not fit its counts")


def _expected(
    tensors: Mapping[str, NDArray[Any]], config: MolAttnConfig, embedding_width: int
) -> dict[str, tuple[type, tuple[int, ...]]]:
    """Return type and shape of each array; numbers of rows and counts are taken as they are."""
    tasks, rows, outputs = config.tasks, tensors["rows"].size, len(config.output_names)
    expected: dict[str, tuple[type, tuple[int, ...]]] = {
        "rows": (np.int64, (rows,)),
        "weights": (np.float64, (rows, outputs)),
        "means": (np.float64, (outputs,)),
        "shares": (np.float64, (len(tasks),)),
    }
    for place, task in enumerate(tasks):
        if task.kind != "regression":
            expected[f"scaling.{place}"] = (np.float64, (1 + len(task.classes),))
    counts = [] if config.counter is None else ["counts", "partners"][: 1 + config.has_partner]
    for name in counts:
        entries = tensors[f"{name}.places"].size
        expected[f"{name}.starts"] = (np.int64, (rows + 1,))
        expected[f"{name}.places"] = (np.uint16, (entries,))
        expected[f"{name}.counts"] = (np.uint8, (entries,))
    widths = {"embedding": embedding_width, "descriptors": len(config.descriptors)}
    numbers = {f"numbers.{name}": widths[name] for name in widths if name in config.kernels}
    if config.features:
        numbers["features"] = len(config.features)
    for name, width in numbers.items():
        expected[f"{name}.mean"] = (np.float64, (width,))
        expected[f"{name}.scale"] = (np.float64, (width,))
        expected[f"{name}.length"] = (np.float64, (1,))
        expected[f"{name}.points"] = (np.float16, (rows, width))
    return expected


def _is_valid(field: str, found: NDArray[Any]) -> bool:
    if field == "starts":
        return found[0] == 0 and bool((np.diff(found) >= 0).all())
    if field in ("scale", "length"):  # the scale of a constant number is infinite
        return bool((found > 0.0).all())
    if field == "counts":
        return bool((found > 0).all())
    if field == "shares":
        return bool(((found >= 0.0) & (found <= 1.0)).all())
    return bool(np.isfinite(found).all())
