"""Explain the predictions of a saved model for a table of molecules."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from molattn.chem.descriptors import are_atom_sums
from molattn.config import ExplainConfig
from molattn.data.table import Table
from molattn.errors import ReasonCode, check_one_of, quoted, reason_meaning
from molattn.explain.explainer import explain_instance, make_instances
from molattn.explain.explanation import Explanation
from molattn.explain.faithfulness import Faithfulness, measure_instances
from molattn.explain.instance import Instance, baseline_atom
from molattn.explain.methods import METHODS, MethodOptions
from molattn.explain.methods.base import NotFiniteError
from molattn.explain.page.files import CONTENTS, PAGE_FILE, ExplanationFiles
from molattn.explain.page.page import ExplanationPage, InvalidRow
from molattn.explain.target import Target, find_target
from molattn.inference.streaming import (
    ReadRow,
    Reads,
    RowCounts,
    molecule_batches,
    open_with_model,
)
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.utils.console import counted, print_errors, print_groups, print_line
from molattn.utils.files import atomic_folder, check_output_folder
from molattn.utils.progress import row_progress
from molattn.utils.reproducibility import threads
from molattn.version import __version__

__all__ = ["explain_table"]

_MOST_CHECKED = 200

_Explained = tuple[Instance, list[Explanation]]


def explain_table(
    model_folder: str | Path,
    source: str | Path | Table,
    output: str | Path,
    config: ExplainConfig | None = None,
    console: Console | None = None,
) -> RowCounts:
    """Explain the prediction for each row of a table.

    The output folder contains ``index.html`` and the files of
    :class:`molattn.explain.page.files.ExplanationFiles`. It is written completely or not at all.
    All tables list the rows that cannot be explained, with a reason code.

    Args:
        model_folder: A run folder, or the folder of a saved model.
        source: The table, in any format that :func:`molattn.data.table.open_table` reads, or an
            open one.
        output: Output folder; the result of an earlier call is replaced.
        config: Methods, target and how to read the table.
        console: Console for progress and messages; None = silent.

    Returns:
        The numbers of rows with and without an explanation.

    Raises:
        InputError: An invalid model, table, method, target or output folder.
    """
    config, console = config or ExplainConfig(), console or Console(quiet=True)
    for name in config.method:
        check_one_of("--method", name, METHODS)
    check_output_folder(Path(output), "an explanation", CONTENTS.__contains__)
    table, model = open_with_model(source, model_folder, config, console)
    # This checks the name before anything is written.
    target = find_target(model, config.target, option="target")
    shown = target.name
    if target.task.kind == "multiclass" and config.target in (None, target.task.name):
        shown = f"{target.task.name} (the most probable class of each molecule)"
    meanings = _remarks(model, config, target, console)
    rows = _explained_rows(table, model, config)
    page = ExplanationPage(f"{100 * config.interval:g}% prediction interval")
    sample, rng = list[Instance](), np.random.default_rng(0)
    errors, done, groups = list[InvalidRow](), 0, 0
    with threads(config.threads), atomic_folder(Path(output)) as folder, ExitStack() as stack:
        files = ExplanationFiles(folder, config.method, stack)
        with row_progress(console, "explain") as advance:
            for row, explained in rows:
                advance(1)
                if isinstance(explained, str):
                    files.add_error(row.number, row.smiles, explained)
                    meaning = reason_meaning(explained)
                    errors.append(InvalidRow(row.number, row.smiles, explained, meaning))
                    continue
                instance, explanations = explained
                files.add(row.number, explanations)
                page.add(row.number, explanations)
                groups += row.row.has_stereo_groups(row.smiles)
                # A uniform random sample for the check (reservoir sampling), without caches.
                k = done if done < _MOST_CHECKED else int(rng.integers(done + 1))
                if config.check and k < _MOST_CHECKED:
                    sample[k : k + 1] = [replace(instance)]
                done += 1
        print_errors(Counter(row.code for row in errors), console)
        print_groups(groups, console)
        check = _check(sample, config, console) if config.check else None
        facts: dict[str, Any] = {
            "molattn": __version__,
            "model": str(model_folder),
            "table": str(table.path),
            "target": config.target or model.config.tasks[0].name,
            "methods": list(config.method),
            "other_inputs": other_inputs(model.config),
            "check": None if check is None else check.to_dict(),
        }
        files.finish(facts)
        facts |= {"name": Path(str(table.path)).name, "target": shown, "methods": meanings}
        page.write(folder / PAGE_FILE, facts, errors, check)
    return RowCounts(done, len(errors))


def _remarks(
    model: MolAttn, config: ExplainConfig, target: Target, console: Console
) -> dict[str, str]:
    """Print what is explained and what is not; return what a score of each method means."""
    if config.target is None and (count := len(model.config.tasks)) > 1:
        name = target.task.name
        print_line(
            console, f"explaining {name}, the first of {count} targets; --target selects another"
        )
    if other := other_inputs(model.config):
        print_line(
            console,
            f"not in the atom scores: the contribution of {other}, which the model also uses",
        )
    meanings = {name: METHODS[name].meaning for name in config.method}
    process = model.gaussian_process
    network_methods = [name for name in config.method if name in ("attention", "rollout")]
    if process is None or process.shares[target.task_index] < 1.0 or not network_methods:
        return meanings
    remark = f"of the network, which has no weight in the predictions of {quoted(target.task.name)}"
    print_line(console, f"{', '.join(network_methods)}: {remark}")
    return meanings | {name: f"{meanings[name]}; {remark}" for name in network_methods}


def _explained_rows(
    table: Table, model: MolAttn, config: ExplainConfig
) -> Iterator[tuple[ReadRow, _Explained | ReasonCode]]:
    """Yield each row, with its molecule and an explanation of each method or its reason code."""
    reads = Reads(similarity=model.uncertainty is not None, atoms=True)
    baseline = baseline_atom(model.config.featurizer)
    rows = (row for batch in molecule_batches(table, model, config, reads) for row in batch)
    for row in islice(rows, config.limit):
        if row.record is None or row.code:
            yield row, row.code or "not_finite"
            continue
        features = np.array([row.features]) if model.config.features else None
        molecules = [(row.molecule, row.record)]
        (instance,) = make_instances(
            model, molecules, features, baseline, config.target, config.interval
        )
        if not np.isfinite(instance.predicted):
            yield row, "not_finite"
            continue
        try:
            explanations = [
                explain_instance(instance, name, MethodOptions()) for name in config.method
            ]
            yield row, (instance, explanations)
        except NotFiniteError:
            yield row, "not_finite"


def other_inputs(config: MolAttnConfig) -> str:
    """List the inputs of a model that are no part of the atom scores; "" = none."""
    sizes = {name: part.stop - part.start for name, part in config.number_groups.items()}
    if are_atom_sums(config.descriptors):
        sizes.pop("descriptors", None)
    inputs = [counted(size, name.removesuffix("s")) for name, size in sizes.items()]
    inputs += ["a second molecule"] if config.has_partner else []
    return " and ".join(filter(None, (", ".join(inputs[:-1]), *inputs[-1:])))


def _check(sample: list[Instance], config: ExplainConfig, console: Console) -> Faithfulness | None:
    if all(instance.num_atoms < 2 for instance in sample):
        print_line(console, "--check: skipped, because no molecule has two or more atoms")
        return None
    with row_progress(console, "check", len(sample)) as advance:
        check = measure_instances(
            sample, config.method, MethodOptions(), progress=lambda: advance(1)
        )
    print_line(console, check.sentence)
    return check
