"""Explain the predictions of a saved model for a table of molecules."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.descriptors import are_atom_sums
from molattn.config import ExplainConfig
from molattn.data.table import Table
from molattn.errors import ReasonCode, check_one_of, quoted, reason_meaning
from molattn.explain.baseline import baseline_atom
from molattn.explain.explainer import explain_instance
from molattn.explain.explanation import Explanation
from molattn.explain.faithfulness.deletion_insertion import Faithfulness, instances_faithfulness
from molattn.explain.faithfulness.summary import summarize
from molattn.explain.instance import Instance
from molattn.explain.methods import METHODS, MethodOptions
from molattn.explain.methods.base import NotFiniteError
from molattn.explain.page.files import CONTENTS, PAGE_FILE, explanation_files
from molattn.explain.page.page import ExplanationPage, InvalidRow
from molattn.explain.target import describe_target, find_target
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

    The output folder contains ``index.html``, ``molecules/``, ``atoms.csv``, ``bonds.csv``,
    ``other_inputs.csv``, ``explanations.json`` and ``attention.npz``, see
    :func:`molattn.explain.page.files.explanation_files`. It is written completely or not at all.
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
        check_one_of("method", name, METHODS)
    check_output_folder(Path(output), "an explanation", CONTENTS.__contains__)
    table, model = open_with_model(source, model_folder, config, console)
    target = describe_target(model, config.target)  # checks the name before anything is written
    facts: dict[str, Any] = {
        "molattn": __version__,
        "model": str(model_folder),
        "table": str(table.path),
        "target": config.target or model.config.tasks[0].name,
        "methods": list(config.method),
        "other_inputs": other_inputs(model.config),
    }
    meanings = _remarks(model, config, target, console)
    rows = _explained_rows(table, model, config)
    sample, errors = _Sample(_MOST_CHECKED if config.check else 0), list[InvalidRow]()
    with (
        threads(config.threads),
        atomic_folder(Path(output)) as folder,
        open(folder / ".page", "w+", encoding="utf-8") as blobs,
        explanation_files(folder, config.method, facts) as files,
    ):
        page = ExplanationPage(blobs, f"{100 * config.interval:g}% prediction interval")
        groups = 0
        with row_progress(console, "explain") as advance:
            for molecule, found in rows:
                advance(1)
                row, smiles = molecule.number, molecule.smiles
                if isinstance(found, str):
                    files.add_error(row, smiles, found)
                    errors.append(InvalidRow(row, smiles, found, reason_meaning(found)))
                    continue
                groups += molecule.row.has_stereo_groups(smiles)
                instance, explanations = found
                files.add(row, explanations)
                page.add(row, explanations)
                sample.add(instance)
        print_errors(Counter(row.code for row in errors), console)
        print_groups(groups, console)
        check = _check(sample.kept, config, console) if config.check else None
        facts["check"] = None if check is None else check.to_dict()
        name = Path(str(table.path)).name
        shown = facts | {"name": name, "target": target, "methods": meanings}
        page.write(folder / PAGE_FILE, shown, errors, check and summarize(check))
        (folder / ".page").unlink()
    return RowCounts(sample.seen, len(errors))


def _remarks(
    model: MolAttn, config: ExplainConfig, target: str, console: Console
) -> dict[str, str]:
    """Print what is explained and what is not; return what a score of each method means."""
    if config.target is None and (count := len(model.config.tasks)) > 1:
        print_line(
            console, f"explaining {target}, the first of {count} targets; --target selects another"
        )
    if other := other_inputs(model.config):
        print_line(
            console,
            f"not in the atom scores: the contribution of {other}, which the model also uses",
        )
    meanings = {name: METHODS[name].meaning for name in config.method}
    task = find_target(model, config.target, [0.0] * len(model.config.output_names)).task
    process = model.gaussian_process
    of_network = [name for name in config.method if name in ("attention", "rollout")]
    if process is None or process.shares[model.config.tasks.index(task)] < 1.0 or not of_network:
        return meanings
    remark = f"of the network, which has no share in the predictions of {quoted(task.name)}"
    print_line(console, f"{', '.join(of_network)}: {remark}")
    return meanings | {name: f"{meanings[name]}; {remark}" for name in of_network}


def _explained_rows(
    table: Table, model: MolAttn, config: ExplainConfig
) -> Iterator[tuple[ReadRow, _Explained | ReasonCode]]:
    is_calibrated = model.uncertainty is not None
    reads = Reads(similarity=is_calibrated, atoms=True)
    batches = molecule_batches(table, model, config, reads)
    baseline = baseline_atom(model.config.featurizer)
    molecules = islice(chain.from_iterable(batches), config.limit)
    return ((molecule, _explained(model, molecule, config, baseline)) for molecule in molecules)


def other_inputs(config: MolAttnConfig) -> str:
    """List the inputs of a model that are no part of the atom scores; "" = none."""
    groups = config.number_groups
    if are_atom_sums(config.descriptors):
        groups.pop("descriptors", None)
    counts = {what: part.stop - part.start for what, part in groups.items()}
    parts = [counted(count, what.removesuffix("s")) for what, count in counts.items()]
    parts += ["a second molecule"] if config.has_partner else []
    return " and ".join([part for part in (", ".join(parts[:-1]), *parts[-1:]) if part])


def _explained(
    model: MolAttn, molecule: ReadRow, config: ExplainConfig, baseline: NDArray[np.float64]
) -> _Explained | ReasonCode:
    """Return a molecule and an explanation of each method, or the reason code of a row of none."""
    if molecule.record is None or molecule.code:
        return molecule.code or "not_finite"
    features = np.array(molecule.features) if model.config.features else None
    row = None if features is None else features[np.newaxis]
    predicted = model.predict_records([molecule.record], features=row)[0]
    if not np.isfinite(predicted).all():
        return "not_finite"
    target = find_target(model, config.target, predicted.tolist())
    record = molecule.record
    instance = Instance(model, molecule.molecule, record, target, baseline, predicted, features)
    try:
        return instance, [
            explain_instance(instance, method, MethodOptions(), level=config.interval)
            for method in config.method
        ]
    except NotFiniteError:
        return "not_finite"


class _Sample:
    """A uniform random sample of a stream of instances (reservoir sampling), without caches."""

    def __init__(self, size: int) -> None:
        self._size, self.seen = size, 0
        self._rng = np.random.default_rng(0)
        self.kept: list[Instance] = []

    def add(self, instance: Instance) -> None:
        index = self.seen if self.seen < self._size else int(self._rng.integers(self.seen + 1))
        self.seen += 1
        if index < self._size:
            self.kept[index : index + 1] = [replace(instance)]


def _check(sample: list[Instance], config: ExplainConfig, console: Console) -> Faithfulness | None:
    if all(instance.num_atoms < 2 for instance in sample):
        print_line(console, "--check: skipped, because no molecule has two or more atoms")
        return None
    with row_progress(console, "check", len(sample)) as advance:
        check = instances_faithfulness(
            sample, config.method, MethodOptions(), progress=lambda: advance(1)
        )
    print_line(console, summarize(check).sentence)
    return check
