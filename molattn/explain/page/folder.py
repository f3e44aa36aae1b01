"""A saved model and a table of molecules to a folder of explanations."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.config import ExplainConfig
from molattn.data.table import Table
from molattn.errors import REASONS, ReasonCode
from molattn.explain.explainer import explain_instance, find_average
from molattn.explain.explanation import Explanation
from molattn.explain.faithfulness.deletion_insertion import Faithfulness, fidelity_of_subjects
from molattn.explain.faithfulness.summary import verdicts
from molattn.explain.instance import Instance
from molattn.explain.methods.base import MethodOptions
from molattn.explain.methods.registry import METHODS, find_method
from molattn.explain.page.files import CONTENTS, PAGE_FILE, explanation_files
from molattn.explain.page.page import ExplanationPage, Refused
from molattn.explain.target import described, find_output
from molattn.inference.streaming import (
    ReadRow,
    RowCounts,
    molecule_batches,
    open_with_model,
    print_refused,
    print_remarks,
)
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.utils.console import print_line
from molattn.utils.files import atomic_folder, check_output_folder
from molattn.utils.progress import RowProgress
from molattn.utils.reproducibility import threads
from molattn.version import __version__

__all__ = ["explain_table"]

_MOST_CHECKED = 200
_MEANINGS: dict[str, str] = {code: text.replace("`", "") for code, text in REASONS.items()}


def explain_table(
    model_folder: str | Path,
    source: str | Path,
    output: str | Path,
    config: ExplainConfig | None = None,
    console: Console | None = None,
) -> RowCounts:
    """Explain every row of a table.

    The folder is there whole or not at all: ``index.html``, ``molecules/``, ``atoms.csv``,
    ``bonds.csv``, ``explanations.json`` and ``attention.npz``, see
    :func:`molattn.explain.page.files.explanation_files`. A row without an explanation is in all of the
    tables, with a reason code.

    Args:
        model_folder: A run folder, or the folder of a saved model.
        source: The table, of any kind that :func:`molattn.data.table.open_table` reads.
        output: The folder to write; a former one of explanations is replaced.
        config: Methods, target and how to read the table.
        console: Where to show progress; silent without one.

    Raises:
        InputError: If the model, the table, the methods, the target or the output cannot be used.
    """
    config = config or ExplainConfig()
    for name in config.method:
        find_method(name)
    check_output_folder(Path(output), "an explanation", CONTENTS.__contains__)
    table, model = open_with_model(Path(source), model_folder, config)
    target = described(model, config.target)  # refuses a name before anything is computed
    console = console or Console(quiet=True)
    print_remarks(table, console)
    if held := held_inputs(model.config):
        remark = f"the model also reads {held}, which no atom's score speaks of"
        print_line(console, remark)
    facts: dict[str, Any] = {
        "molattn": __version__,
        "model": str(model_folder),
        "table": str(source),
        "target": config.target or model.config.tasks[0].name,
        "methods": list(config.method),
        "held": held,
    }
    instances = _subjects(table, model, config)
    with (
        threads(config.threads),
        atomic_folder(Path(output)) as folder,
        open(folder / ".page", "w+", encoding="utf-8") as blobs,
        explanation_files(folder, config.method, facts) as files,
    ):
        page = ExplanationPage(blobs, f"{100 * config.interval:g} % interval")
        refused: list[Refused] = []
        sample = _Sample(_MOST_CHECKED if config.check else 0)
        with RowProgress(console, "explain") as progress:
            for molecule, instance in instances:
                progress.advance(1)
                if isinstance(instance, str):
                    files.refuse(molecule.number, molecule.smiles, instance)
                    meaning = _MEANINGS.get(instance.removeprefix("partner_"), "")
                    refused.append(Refused(molecule.number, molecule.smiles, instance, meaning))
                    continue
                explanations = _explained(instance, config)
                files.add(molecule.number, explanations)
                page.add(molecule.number, explanations)
                sample.add(instance)
        print_refused(Counter(row.code for row in refused), console)
        check = _check(sample.kept, config, console) if config.check else None
        found = None if check is None else verdicts(check)
        if found is not None:
            print_line(console, found.sentence)
        facts["check"] = None if check is None else check.to_dict()
        page.write(
            folder / PAGE_FILE,
            name=Path(source).name,
            model=str(model_folder),
            target=target,
            methods={name: METHODS[name].meaning for name in config.method},
            held=held,
            refused=refused,
            check=found,
        )
        (folder / ".page").unlink()
    return RowCounts(sample.seen, len(refused))


def _subjects(
    table: Table, model: MolAttn, config: ExplainConfig
) -> Iterator[tuple[ReadRow, Instance | ReasonCode]]:
    is_known = model.uncertainty is not None
    batches = molecule_batches(table, model, config, reads_similarity=is_known)
    average = find_average(model, None)
    molecules = islice(chain.from_iterable(batches), config.limit)
    return ((molecule, _subject(model, molecule, config, average)) for molecule in molecules)


def held_inputs(config: MolAttnConfig) -> str:
    """Say what a model reads besides the atoms and pairs of the molecule; "" = nothing."""
    counts = {
        "columns of the table": len(config.features),
        "descriptors": len(config.descriptors),
        "Morgan counts": config.morgan_counts,
    }
    parts = [f"{count:,} {what}" for what, count in counts.items() if count]
    return ", ".join([*parts, *(["a second molecule"] if config.has_partner else [])])


def _subject(
    model: MolAttn, molecule: ReadRow, config: ExplainConfig, average: NDArray[np.float64]
) -> Instance | ReasonCode:
    """Return what is to be explained, or why there is nothing."""
    if molecule.record is None or molecule.code:
        return molecule.code or "not_finite"
    features = np.array(molecule.features) if model.config.features else None
    given = None if features is None else features[np.newaxis]
    predicted = model.predict_records([molecule.record], features=given)[0]
    if not np.isfinite(predicted).all():
        return "not_finite"
    output = find_output(model, config.target, predicted.tolist())
    return Instance(model, molecule.smiles, molecule.record, output, average, predicted, features)


def _explained(instance: Instance, config: ExplainConfig) -> list[Explanation]:
    return [
        explain_instance(instance, method, MethodOptions(), level=config.interval)
        for method in config.method
    ]


class _Sample:
    """So many instances of a stream, each with the same chance, without what they computed."""

    def __init__(self, size: int) -> None:
        self._size, self.seen = size, 0
        self._draw = np.random.default_rng(0)
        self.kept: list[Instance] = []

    def add(self, instance: Instance) -> None:
        self.seen += 1
        place = self.seen - 1
        if place >= self._size:
            place = int(self._draw.integers(self.seen))
        if place < self._size:
            self.kept[place : place + 1] = [replace(instance)]


def _check(sample: list[Instance], config: ExplainConfig, console: Console) -> Faithfulness | None:
    if all(instance.num_atoms < 2 for instance in sample):
        line = "--check: no molecule of two atoms or more, so nothing could be measured"
        print_line(console, line)
        return None
    with RowProgress(console, "check", len(sample)) as progress:
        return fidelity_of_subjects(
            sample, config.method, MethodOptions(), progress=lambda: progress.advance(1)
        )
