"""The Gaussian process of a trained model, and its share in the predictions."""

import time
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.split import Split
from molattn.config import TrainConfig
from molattn.data.dataset import TrainingTable
from molattn.errors import quoted
from molattn.model.gaussian_process.head import GaussianProcessHead, log_bayes_factor
from molattn.model.model import MolAttn
from molattn.model.outputs import mean_of_members, shares_of_second
from molattn.task import interleaved, output_slices
from molattn.utils.console import print_line

__all__ = ["add_gaussian_process", "share_lines", "some_rows"]

Array = NDArray[np.float64]

_MOST_LEARNED, _MOST_HELD_OUT = 100_000, 20_000
_DESCRIPTORS = "descriptors"
_VERY_STRONG = 5.0  # evidence: Kass and Raftery, J. Am. Stat. Assoc. 1995, 90, 773


def add_gaussian_process(
    model: MolAttn,
    config: TrainConfig,
    table: TrainingTable,
    parts: Split,
    console: Console | None = None,
) -> Array:
    """Add the Gaussian process of a run to its model, and predict the validation rows.

    A Gaussian process of the training rows predicts the validation rows, which determines its
    share in the predictions of the model. The model then gets one of both sets of rows. Of more
    than 100,000 training rows or 20,000 validation rows, so many are drawn (:func:`some_rows`).
    With the default kernels, it compares descriptors only if there is very strong evidence for
    that: if they make the labels of the training rows, or of 800 of them, more likely by a factor
    of exp(5).

    A censored label counts as its bound if the Gaussian process of the others predicts a value on
    the wrong side of it, and is left out otherwise; it has no part in the share. Without validation
    rows, the share beside a network is a half until
    :func:`molattn.training.out_of_fold.calibrate_out_of_fold` determines it.

    Args:
        model: A model with trained networks; its config gets the kernels of the run.
        config: Of the run.
        table: The usable rows.
        parts: Which of them are training and validation rows.
        console: Where to log.

    Returns:
        Outputs of each member for the validation rows as of
        :meth:`molattn.MolAttn.predict_outputs`. Their labels determine only the shares.
    """
    model.gaussian_process = None
    model.config = replace(model.config, kernels=config.kernels)
    options, tasks = config.gaussian_process, model.config.tasks
    if not config.kernels:
        validation = table.molecules(parts.val)
        return model.predict_outputs(validation.records, features=validation.features)
    start = time.perf_counter()
    train = some_rows(table, parts.train, _MOST_LEARNED, config.training.seed)
    val = some_rows(table, parts.val, _MOST_HELD_OUT, config.training.seed)
    rows = np.concatenate([train, val])
    molecules, held_out = table.molecules(rows), np.arange(len(train), len(rows))
    network, inputs = model.network_outputs(molecules.records, features=molecules.features)
    labels = model.scale(torch.from_numpy(molecules.targets)).double().numpy()
    bounds = None
    if molecules.bounds is not None:
        bounds = [model.scale(torch.from_numpy(one)).double().numpy() for one in molecules.bounds]
    keys = [_key(table, row) for row in rows.tolist()]
    if _DESCRIPTORS in config.kernels and not options.kernels:
        factor = log_bayes_factor(
            model.config,
            inputs[np.arange(len(train))],
            labels[: len(train)],
            _DESCRIPTORS,
            weights=None if molecules.weights is None else molecules.weights[: len(train)],
            keys=keys[: len(train)],
            seed=config.training.seed,
        )
        compares = factor > _VERY_STRONG
        said, relation = ("compares", "above") if compares else ("does not compare", "at most")
        print_line(
            console,
            f"the Gaussian process {said} descriptors: their log Bayes factor is {factor:.1f}, "
            f"{relation} {_VERY_STRONG:.0f}",
        )
        if not compares:
            kernels = tuple(name for name in config.kernels if name != _DESCRIPTORS)
            model.config = replace(model.config, kernels=kernels)
            numbers = {name: inputs.numbers[name] for name in inputs.numbers if name in kernels}
            inputs = replace(inputs, numbers=numbers)

    def fit(chosen: NDArray[np.int64]) -> GaussianProcessHead:
        process = fit_labels(chosen, labels[chosen])
        if bounds is None:
            return process
        low, high = (one[chosen] for one in bounds)
        starts = [part.start for part in output_slices(tasks)]
        predicted = process.predict(inputs[chosen])[:, starts]
        violated = np.where(predicted < low, low, np.where(predicted > high, high, np.nan))
        if np.isnan(violated).all():
            return process
        return fit_labels(chosen, np.fmax(labels[chosen], violated))

    def fit_labels(chosen: NDArray[np.int64], known: Array) -> GaussianProcessHead:
        return GaussianProcessHead.fit(
            model.config,
            inputs[chosen],
            known,
            weights=None if molecules.weights is None else molecules.weights[chosen],
            keys=[keys[row] for row in chosen.tolist()],
            inducing_points=options.inducing_points,
            seed=config.training.seed,
        )

    process = fit(np.arange(len(train)))
    if options.predictor == "both" and not len(held_out):
        process = replace(process, shares=np.full(len(tasks), 0.5))
    unseen = inputs[held_out]
    first = mean_of_members(torch.from_numpy(network[:, held_out]), tasks).numpy()
    second, known = process.predict(unseen), labels[held_out]
    shares = process.shares
    if options.predictor == "both" and len(held_out):
        shares = shares_of_second(tasks, first, second, known)
    process = replace(process, shares=shares)
    if len(held_out) == len(parts.val):
        outputs = model.to_transformed(process.combine(network[:, held_out], unseen))
    else:
        model.gaussian_process, validation = process, table.molecules(parts.val)
        outputs = model.predict_outputs(validation.records, features=validation.features)
    if len(held_out):
        process = replace(fit(np.arange(len(rows))), shares=shares)
    lines = np.array([table.rows[row].line for row in rows])
    model.gaussian_process = process.with_rows(lines)
    seconds = time.perf_counter() - start
    if len(held_out):
        for line in share_lines(model):
            print_line(console, line)
    print_line(
        console,
        f"Gaussian process with {len(process.rows)} inducing points fitted in {seconds:.1f} s",
    )
    return outputs


def some_rows(
    table: TrainingTable, rows: NDArray[np.int64], most: int, seed: int
) -> NDArray[np.int64]:
    """Return rows of a table; of more than ``most``, so many drawn at random, ascending.

    They are drawn in turn for each target of the rows that have its label.
    """
    if len(rows) <= most:
        return rows
    order = np.random.default_rng(seed).permutation(len(rows))
    return np.sort(rows[interleaved(order, ~np.isnan(table.targets[rows]))[:most]])


def share_lines(model: MolAttn) -> list[str]:
    """Return a log line on the share of a model's Gaussian process for each target, if any."""
    if model.gaussian_process is None:
        return []
    return [
        f"{quoted(task.name)}: {share:.0%} Gaussian process, {1.0 - share:.0%} network"
        for task, share in zip(model.config.tasks, model.gaussian_process.shares, strict=True)
    ]


def _key(table: TrainingTable, row: int) -> str:
    """Return the content of a row, independent of its position and of how its SMILES is written."""
    record = table.records[row]
    partner = None if record.partner is None else record.partner.smiles
    columns = (table.targets, table.weights, table.features)
    numbers = [None if column is None else column[row].tolist() for column in columns]
    if table.bounds is not None:
        numbers.append(table.bounds[:, row].tolist())
    return repr((record.smiles, partner, numbers))
