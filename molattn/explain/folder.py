"""Explain the predictions of a saved model for a table of molecules."""

import base64
import json
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.descriptors import are_atom_sums
from molattn.config import ExplainConfig
from molattn.data.table import Table, name_column, write_table
from molattn.errors import ReasonCode, check_one_of, quoted, reason_meaning
from molattn.explain.explainer import Explanation, explain_instance, make_instances
from molattn.explain.faithfulness import FEWEST, Faithfulness, measure_instances
from molattn.explain.instance import Instance
from molattn.explain.methods import METHODS, MethodOptions, NotFiniteError
from molattn.explain.page import ExplanationPage, InvalidRow
from molattn.explain.reach import AttentionByDistance, distance_shares
from molattn.explain.sites import draw_table
from molattn.explain.target import Target, find_target
from molattn.inference.streaming import (
    ReadRow,
    RowCounts,
    has_parent,
    molecule_batches,
    open_with_model,
)
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.readable import target_name
from molattn.utils.console import counted, print_line, print_remarks, row_progress
from molattn.utils.devices import threads
from molattn.utils.files import atomic_folder, check_output_folder
from molattn.version import __version__

_MOST_CHECKED = 200
PAGE_FILE = "index.html"
_PICTURES = "molecules"
_JSON = "explanations.json"
_WEIGHTS = "attention.npz"
_BY_DISTANCE = "attention_by_distance.png"
_TABLES = {
    "atoms.csv": ("row", "atom", "symbol", "smiles"),
    "bonds.csv": ("row", "atom_1", "atom_2", "smiles"),
    "other_inputs.csv": ("row", "input"),
}
CONTENTS = (PAGE_FILE, _PICTURES, _JSON, *_TABLES, _WEIGHTS, _BY_DISTANCE)
"""Contents of a folder of explanations."""

_Explained = tuple[Instance, list[Explanation]]


def explain_table(
    model_folder: str | Path,
    source: str | Path | Table,
    output: str | Path,
    config: ExplainConfig | None = None,
    console: Console | None = None,
) -> RowCounts:
    """Explain the prediction for each row of a table.

    Of a target of atoms or bonds the predictions are drawn, see :func:`draw_table`. Otherwise the
    output folder contains ``index.html``, pictures in ``molecules``, and

    - ``atoms.csv``, ``bonds.csv`` and ``other_inputs.csv`` (a row for each feature group of the
      whole molecule), with a column for each method; ``row`` is
      :attr:`molattn.data.table.Row.line`; atoms are in the order of the input and have its
      numbers, from 0;
    - ``explanations.json``, all numbers except attention and gates;
    - ``attention_by_distance.png``, how far each head looks, if the network has attention layers
      and takes part in the prediction or ``attention`` is among the methods:
      :class:`molattn.explain.AttentionByDistance`, the numbers of which are in the JSON file;
    - ``attention.npz``, ``attention_ROW`` ``[layers, heads, n receivers, n senders]`` and
      ``gates_ROW`` ``[layers, heads, n]``.

    It is written completely or not at all. All tables list the rows that cannot be explained.

    Raises:
        InputError: An invalid model, table, method, target or output folder.
    """
    config = config or ExplainConfig()
    console = console or Console(quiet=True)
    for name in config.method:
        check_one_of("method", name, METHODS)
    check_output_folder(Path(output), "an explanation", CONTENTS.__contains__)
    table, model = open_with_model(source, model_folder, config, console)
    if (drawn := _target_of_sites(model, config.target)) is not None:
        return draw_table(model, table, Path(output), replace(config, target=drawn), console)
    if config.target is not None:
        name = target_name(model.config.tasks, model.endpoints, config.target)
        config = replace(config, target=name)
    target = find_target(model, config.target)  # before anything is written
    if config.check:
        line = f"--check tests up to {_MOST_CHECKED} molecules; a verdict needs at least {FEWEST}"
        print_line(console, line)
    meanings = _remarks(model, config, target, console)
    facts: dict[str, Any] = {"molattn": __version__, "model": str(model_folder)}
    facts |= {"table": str(table.path), "target": config.target or model.config.tasks[0].name}
    facts |= {"methods": list(config.method), "other_inputs": other_inputs(model.config)}
    facts["has_network"] = _has_network(model, target) or "attention" in config.method
    with threads(config.threads), atomic_folder(Path(output)) as folder, ExitStack() as stack:
        files = _Files(folder, config, stack, table.header, target)
        with row_progress(console, "explain") as advance:
            for row, explained in _explained_rows(table, model, config):
                advance(1)
                files.add(row, explained)
        errors = Counter(code for _, _, code, _ in files.errors)
        print_remarks(console, errors, files.groups, files.parents, files.redrawn)
        check = _check(files.sample, config, console) if config.check else None
        looks = files.shares, files.head_names, files.uniform
        average = AttentionByDistance.of(model, *looks) if facts["has_network"] else None
        measured = {"check": check, "attention_by_distance": average}
        measured = {name: x and x.to_dict() for name, x in measured.items()}
        files.finish(facts | measured)
        if average is not None:
            average.save(folder / _BY_DISTANCE)
            picture = (folder / _BY_DISTANCE).read_bytes()
            facts["attention_by_distance"] = base64.b64encode(picture).decode()
        label = _label(target, config.target)
        facts |= {"name": Path(str(table.path)).name, "target": label, "methods": meanings}
        files.page.write(folder / PAGE_FILE, facts, files.errors, check)
    return RowCounts(files.done, len(files.errors))


def _target_of_sites(model: MolAttn, name: str | None) -> str | None:
    """Return the property of atoms or bonds that is asked for, or the first; None if none is."""
    names = [task.name for tasks in model.config.site_tasks.values() for task in tasks]
    if model.config.tasks:
        return name if name in names else None
    name = name or names[0]
    check_one_of("target", name, names)
    return name


def _label(target: Target, name: str | None) -> str:
    """Return a name of the target for all molecules of a table."""
    if target.task.kind == "multiclass" and name in (None, target.task.name):
        return f"{target.task.name} (the most probable class of each molecule)"
    return target.name


def _remarks(
    model: MolAttn, config: ExplainConfig, target: Target, console: Console
) -> dict[str, str]:
    """Print which inputs are explained and which are not; return the meaning of each score."""
    if config.target is None and (count := len(model.config.tasks)) > 1:
        remark = f"the first of {count} targets; --target selects another"
        print_line(console, f"explaining {target.task.name}, {remark}")
    if other := other_inputs(model.config):
        remark = f"the contribution of {other}, which the model also uses"
        print_line(console, f"not in the atom scores: {remark}")
    meanings = {name: METHODS[name].summary for name in config.method}
    name = quoted(target.task.name)
    if model.config.target_transforms[target.task_index].kind == "log":
        unit = target.unit or "its unit"
        remark = f"contributions to {name} in {unit}, not to the logarithm that the model learned"
        print_line(console, remark)
        signed = {key: text for key, text in meanings.items() if METHODS[key].signed}
        meanings |= {key: f"{text}; {remark}" for key, text in signed.items()}
    if _has_network(model, target):
        return meanings
    remark = f"of the network, which has no weight in the predictions of {name}"
    if "attention" not in meanings:
        print_line(console, f"not shown: attention {remark}")
        return meanings
    print_line(console, f"attention: {remark}")
    return meanings | {"attention": f"{meanings['attention']}; {remark}"}


def _has_network(model: MolAttn, target: Target) -> bool:
    """Return whether a network takes part in the predictions of a target."""
    process = model.gaussian_process
    return process is None or bool(process.shares[target.task_index] < 1.0)


def _explained_rows(
    table: Table, model: MolAttn, config: ExplainConfig
) -> Iterator[tuple[ReadRow, _Explained | ReasonCode]]:
    """Yield each row, with its molecule and an explanation of each method or its reason code."""
    fields = model.config.input_fields(fingerprint=model.uncertainty is not None, symbols=True)
    rows = (row for batch in molecule_batches(table, model, config, fields) for row in batch)
    for row in islice(rows, config.limit):
        if row.record is None or row.code:
            yield row, row.code or "not_finite"
            continue
        features = np.array([row.features]) if model.config.features else None
        molecules = [(row.molecule, row.record)]
        (instance,) = make_instances(model, molecules, features, config.target, config.interval)
        if not np.isfinite(instance.predicted):
            yield row, "not_finite"
            continue
        try:
            options = MethodOptions()
            explanations = [explain_instance(instance, name, options) for name in config.method]
        except NotFiniteError:
            yield row, "not_finite"
        else:
            yield row, (instance, explanations)


def _texts(scores: NDArray[np.float64]) -> list[str]:
    """Return the cells of scores in a table."""
    return [f"{score:.7g}" for score in scores]


def other_inputs(config: MolAttnConfig) -> str:
    """List the inputs of a model that are no part of the atom scores; "" = none."""
    sizes = {name: columns.stop - columns.start for name, columns in config.number_groups.items()}
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
        check = measure_instances(sample, config.method, MethodOptions(), lambda: advance(1))
    print_line(console, check.sentence)
    return check


class _Files:
    """The files of explanations in a folder, written row by row; the stack closes them."""

    def __init__(
        self,
        folder: Path,
        config: ExplainConfig,
        stack: ExitStack,
        header: Sequence[str],
        target: Target,
    ) -> None:
        measured = header.index(target.task.name) if target.task.name in header else None
        self._shown = name_column(header), measured
        self.page = ExplanationPage(
            f"{100 * config.interval:g}% prediction interval", is_logarithm=target.is_logarithm
        )
        self.errors: list[InvalidRow] = []
        self.sample: list[Instance] = []
        self.done = self.groups = self.parents = self.redrawn = 0
        self._rng = np.random.default_rng(0)
        self.shares = self.uniform = np.zeros(())
        self.head_names: tuple[str, ...] = ()
        self._pictures = folder / _PICTURES
        self._pictures.mkdir()
        self._no_scores = [""] * len(config.method)
        self._atoms, self._bonds, self._others = (
            stack.enter_context(write_table(folder / name, (*columns, *config.method, "error")))
            for name, columns in _TABLES.items()
        )
        self._json = stack.enter_context((folder / _JSON).open("w", encoding="utf-8"))
        self._separator = '{"rows": [\n'
        archive = zipfile.ZipFile(folder / _WEIGHTS, "w", zipfile.ZIP_DEFLATED)
        self._weights = stack.enter_context(archive)

    def add(self, row: ReadRow, explained: _Explained | ReasonCode) -> None:
        """Write the explanations of a row, one for each method, or its reason code."""
        number = row.table_row.line
        smiles = row.smiles
        if isinstance(explained, str):
            for write in (self._atoms, self._bonds):
                write([number, "", "", "", *self._no_scores, explained])
            self._others([number, "", *self._no_scores, explained])
            self._write_row(number, smiles, explained, [])
            self.errors.append((number, smiles, explained, reason_meaning(explained)))
            return
        instance, explanations = explained
        self._write(number, explanations)
        texts = row.table_row.cells
        cells = ["" if column is None else texts[column].strip() for column in self._shown]
        self.page.add(number, explanations, *cells)
        shares, uniform = distance_shares(explanations[0])
        self.shares = self.shares + shares
        self.uniform = self.uniform + uniform
        self.head_names = explanations[0].head_names
        self.groups += row.table_row.has_stereo_groups(smiles)
        self.parents += has_parent(row._replace(record=instance.record), instance.model)
        self.redrawn += instance.record.is_redrawn
        # A uniform random sample for the check (reservoir sampling), without caches.
        k = self.done if self.done < _MOST_CHECKED else int(self._rng.integers(self.done + 1))
        if k < _MOST_CHECKED:
            self.sample[k : k + 1] = [replace(instance)]
        self.done += 1

    def _write(self, row: int, explanations: Sequence[Explanation]) -> None:
        first = explanations[0]
        numbers = first.atom_numbers
        atoms = [_texts(explanation.atom_scores) for explanation in explanations]
        for number, symbol, *scores in zip(numbers, first.symbols, *atoms, strict=True):
            self._atoms([row, number, symbol, first.smiles, *scores, ""])
        bonds = [_texts(explanation.bond_scores) for explanation in explanations]
        for (begin, end), *scores in zip(first.bonds, *bonds, strict=True):
            self._bonds([row, numbers[begin], numbers[end], first.smiles, *scores, ""])
        others = [explanation.other_scores for explanation in explanations]
        for name in dict.fromkeys(name for scores in others for name in scores):
            texts = (f"{scores[name]:.7g}" if name in scores else "" for scores in others)
            self._others([row, name, *texts, ""])
        entries = [explanation.to_dict(with_attention=False) for explanation in explanations]
        self._write_row(row, first.smiles, "", entries)
        for name, array in {"attention": first.attention, "gates": first.gates}.items():
            if array is not None:
                with self._weights.open(f"{name}_{row}.npy", "w") as file:
                    np.save(file, np.ascontiguousarray(array), allow_pickle=False)
        for explanation in explanations:
            for ending in ("svg", "png"):
                explanation.save(self._pictures / f"{row}_{explanation.method}.{ending}")

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Write further entries of ``explanations.json``."""
        start = self._separator if self._separator.startswith("{") else "\n"
        self._json.write(f"{start}],\n{json.dumps(dict(facts), allow_nan=False)[1:]}\n")

    def _write_row(self, row: int, smiles: str, code: str, entries: Sequence[Any]) -> None:
        values = {"row": row, "smiles": smiles, "error": code, "explanations": entries}
        self._json.write(self._separator + json.dumps(values, allow_nan=False))
        self._separator = ",\n"
