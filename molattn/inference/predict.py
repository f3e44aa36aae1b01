"""Predictions and learned embeddings for the molecules in a table."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, compress, repeat
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.fingerprints import split_fingerprints
from molattn.chem.reader import Fields
from molattn.chem.shift import MOST_COMPARED, shift_auc, shift_lines
from molattn.config import EmbedConfig, MoleculeLimits, PredictConfig
from molattn.data.labels import (
    LabelError,
    interval_cells,
    label_values,
    prediction_beside,
    property_list,
)
from molattn.data.table import FORMATS, Table, output_format
from molattn.data.table.sdf import SDFTable
from molattn.errors import InputError, ReasonCode, SmilesError, matching, quoted
from molattn.inference.parts import Tally
from molattn.inference.streaming import (
    Cells,
    OutputSpec,
    ReadRow,
    RowCounts,
    map_table,
    open_with_model,
)
from molattn.model.columns import PredictionColumns
from molattn.model.confidence import CONFIDENCES
from molattn.model.difference import (
    Side,
    difference_cells,
    difference_columns,
    differences,
    missing_interval,
)
from molattn.model.model import MolAttn
from molattn.model.overview import conversions, overview_columns
from molattn.model.readable import headings
from molattn.model.sites import SiteColumns, count_unlabeled, predict_sites, site_atoms
from molattn.record import MoleculeRecord
from molattn.task import Level, Task
from molattn.utils.console import print_line


class PredictedTable(NamedTuple):
    """Predictions ``[n, outputs]`` of rows with a label; labels ``[n, T]``, NaN where missing.

    ``bounds`` ``[2, n, T]`` are of censored labels; ``tally`` is what was counted in the rows.
    """

    tally: Tally
    tasks: tuple[Task, ...]
    prediction: NDArray[np.float64]
    target: NDArray[np.float64]
    model: MolAttn
    bounds: NDArray[np.float64]

    @property
    def counts(self) -> RowCounts:
        """Number of rows with a prediction, and number of rows with an error."""
        return RowCounts.of(self.tally)


def predict_table(
    model_folder: str | Path | MolAttn,
    source: str | Path | Table,
    output: str | Path | IO[bytes],
    config: PredictConfig | None = None,
    console: Console | None = None,
) -> PredictedTable:
    """Predict every row of a table, and collect its labels in columns named like targets.

    The output has all rows and columns of the table, in order, the columns of the prediction (see
    :class:`molattn.model.columns.PredictionColumns`), and ``error``, the reason code of
    a row without a prediction. One of these that has the name of a column of the table gets an
    underscore. The file is written completely or not at all; with ``config.resume``, that goes on
    after an interruption.

    With ``config.neighbors`` it has for each task NAME and that number of training rows, those that
    contribute most to its prediction (:meth:`molattn.MolAttn.neighbors`), the columns
    ``NAME_neighbor_1_row``, ``NAME_neighbor_1_similarity``, ``NAME_neighbor_1_contribution`` and,
    if the model keeps SMILES, ``NAME_neighbor_1_smiles``. With ``config.explain_confidence`` each
    task has ``NAME_confidence_reason`` (:meth:`molattn.MolAttn.explain_confidence`), and each
    binary one with a Gaussian process the interval of its probability, ``NAME_probability_low`` and
    ``NAME_probability_high``. With ``config.difference_from`` it has the columns of
    :func:`molattn.model.difference.difference_columns`, and ``difference_error``, the reason code
    of a row whose molecule in that column is not predicted.

    An RDKit molecule of a DataFrame is written as its SMILES, whose order the lists of atoms and
    bonds follow; :meth:`molattn.MolAttn.predict_atoms` keeps the order of its atoms.

    Labels with a relation, such as ``>10`` or by the columns of relations of the training, are
    censored; the columns of limits of the training are read too.

    Args:
        model_folder: The folder of a run or of a saved model, or a model.
        source: The table, in any format that :func:`molattn.data.table.open_table` reads or an
            open one, with the columns of the model's second molecule and extra features if it has
            any.
        output: The file to write, in the format of its name; an existing file is replaced. A binary
            stream gets CSV, row by row.
        config: The options.
        console: Where to show progress; None = nowhere.

    Raises:
        InputError: The model, the table or the output cannot be used.
    """
    config = config or PredictConfig()
    table, model = open_with_model(source, model_folder, config, console, output)
    if config.atoms or config.bonds:
        spec = _sites_spec(model, config)
        count_sites = partial(_unlabeled, model, ["bond" if config.bonds else "atom"])
        tally = map_table(table, model, output, spec, config, console, count_sites)
        _print_shortfalls(model, table, tally, config.interval, console)
        none = np.zeros((0, 0))
        return PredictedTable(tally, (), none, none, model, np.zeros((2, 0, 0)))
    output = Path(output) if isinstance(output, str) else output
    structure = ""
    if output_format(output) is FORMATS["sdf"]:
        structure = "block" if isinstance(table, SDFTable) else "smiles"
    spec = prediction_spec(
        *(model, config.interval, config.neighbors, config.batch_size),
        explain_confidence=config.explain_confidence,
        structure=structure,
        reference=_reference(table, model, config, console),
    )
    spec = readable_spec(spec, model, output, config)
    is_shown = model.uncertainty is not None and console is not None and not console.quiet
    step = 1 + table.count() // MOST_COMPARED if is_shown else None
    count = _TallyRows(model, table, step)
    tally = map_table(table, model, output, spec, config, console, count)
    _print_shortfalls(model, table, tally, config.interval, console)
    if tally.lengths:
        for line in _shift_lines(tally, model):
            print_line(console, line)
    tasks = model.config.tasks
    width = len(model.config.output_names)
    columns = width + 3 * len(tasks)
    rows = len(tally.labeled) // max(1, columns)
    numbers = np.array(tally.labeled).reshape(rows, columns)
    labels = numbers[:, width:].reshape(rows, 3, len(tasks))
    target, *bounds = np.moveaxis(labels, 1, 0)
    return PredictedTable(tally, tasks, numbers[:, :width], target, model, np.stack(bounds))


def _unlabeled(
    model: MolAttn, levels: Iterable[Level], rows: Sequence[tuple[ReadRow, Cells]]
) -> Tally:
    """Count the atoms, bonds or both that are written, and that the model does not predict."""
    records: Any = [row.record for row, _ in rows]
    return Tally(unlabeled=count_unlabeled(model.config, model.site_calibration, records, levels))


def _print_shortfalls(
    model: MolAttn, table: Table, tally: Tally, level: float, console: Console | None
) -> None:
    """Print why molecules, atoms or bonds have no prediction, interval or score."""
    unread = [
        quoted(task.name)
        for site, tasks in model.config.site_tasks.items()
        for task in tasks
        if property_list(table, task.name, site) in table.header
    ]
    if unread:
        reason = "no scores, as labels of atoms and bonds are not read here"
        print_line(console, f"{', '.join(unread)}: {reason}")
    for sites, count in tally.unlabeled.items():
        if count:
            reason = "not predicted, as no training label is of their elements"
            print_line(console, f"{sites}: {count:,} {reason}")
    of_molecules = model.uncertainty and model.uncertainty.calibration
    missing = "the model is not calibrated: no intervals, no confidence"
    missing_sites = "atoms and bonds are not calibrated, as in a joined ensemble: no intervals"
    for calibration, tasks, line in (
        (of_molecules, model.config.tasks, missing),
        (model.site_calibration, model.config.site_tasks, missing_sites),
    ):
        for text in calibration.shortfalls(level) if calibration else [line] * bool(tasks):
            print_line(console, text)


def _shift_lines(tally: Tally, model: MolAttn) -> list[str]:
    """Compare the molecules whose fingerprints were kept with the training molecules."""
    uncertainty = model.predictor.calibrated_uncertainty()
    positions, lengths = (np.array(x, np.uint16) for x in (tally.positions, tally.lengths))
    fingerprints = split_fingerprints(positions, lengths)
    is_trained = uncertainty.fingerprints.contains(fingerprints)
    new = [
        fingerprint
        for fingerprint, trained in zip(fingerprints, is_trained, strict=True)
        if not trained
    ]
    return shift_lines(shift_auc(uncertainty.fingerprints.fingerprints, new), "the new molecules")


def readable_spec(
    spec: OutputSpec, model: MolAttn, output: Path | IO[bytes], config: PredictConfig
) -> OutputSpec:
    """Return an output as the style asks for."""
    is_excel = output_format(output) is FORMATS["xlsx"]
    for option in ("structures", "style"):
        if getattr(config, option) in (True, "readable") and not is_excel:
            message = "expected an --output that is an Excel file, or SMILES without --neighbors"
            raise InputError(message, option=option)
    if is_excel and config.style != "machine":
        titles = headings(model.predictor, model.endpoints, config.neighbors or 0)
        about = model.config.tasks, model.endpoints
        columns = overview_columns(*about, spec.columns)
        spec = replace(spec, headings=titles, overview=columns, conversions=conversions(*about))
    return replace(spec, structures=config.structures)


class _TallyRows:
    """Counts labels beside their predictions, and predictions by confidence.

    Of every ``step``-th row the fingerprint is kept; None = of no row.
    """

    def __init__(self, model: MolAttn, table: Table, step: int | None) -> None:
        self._step = step
        self._model = model
        self._tasks = model.config.tasks
        self._labels = label_columns(model, table)
        relations = model.config.relation_columns or [""] * len(self._tasks)
        self._relations = [_column(table, [name]) for name in relations]
        names = model.config.interval_columns
        ends = [None if prediction_beside(table, a) else _column(table, [a]) for a in names]
        self._intervals: list[Any] = [*zip(ends[::2], ends[1::2], strict=True)]
        self._intervals += [(None, None)] * (len(self._tasks) - len(self._intervals))
        columns = [*PredictionColumns(model.predictor).columns]
        self._outputs = [columns.index(name) for name in model.config.output_names]
        name = "training_similarity"
        self._similarity = columns.index(name) if name in columns else None
        graded = [f"{task.name}_confidence" for task in self._tasks]
        self._graded = [columns.index(name) for name in graded if name in columns]

    def __call__(self, rows: Sequence[tuple[ReadRow, Cells]]) -> Tally:
        """Count rows, given the cells of their predictions."""
        similarity = np.full(len(rows), np.nan)
        if self._similarity is not None:
            similarity[:] = [cells[self._similarity] for _, cells in rows]
        outputs = np.array([[cells[n] for n in self._outputs] for _, cells in rows], dtype=float)
        labels = np.full((3, len(rows), len(self._tasks)), np.nan)  # and lower and upper bounds
        table_rows = [row.table_row for row, _ in rows]
        tally = _unlabeled(self._model, self._model.config.site_tasks, rows)
        for index, task in enumerate(self._tasks):
            column = self._labels[index]
            relation = self._relations[index]
            if column is None:
                continue
            cells = [row.numeral(column) for row in table_rows]
            relations = None if relation is None else [row.cells[relation] for row in table_rows]
            wrong: dict[int, LabelError] = {}
            pair = self._intervals[index]
            limits = None if None in pair else interval_cells(table_rows, pair)
            values, bounds = label_values(cells, task, relations, wrong, limits)
            labels[:, :, index] = [values, *bounds]
            tally.unusable[task.name] = len(wrong)
            tally.censored[task.name] = int(np.logical_xor(*np.isnan(bounds)).sum())
        is_labeled = ~np.isnan(labels).all(axis=(0, 2))
        grades = Counter(cells[n] for _, cells in rows for n in self._graded)
        tally.confidence.update({name: grades[name] for name in CONFIDENCES if grades[name]})
        tally.trained = int((similarity[is_labeled] >= 1.0).sum())
        if rows:
            tally.labeled.extend(np.hstack([outputs, *labels])[is_labeled].ravel().tolist())
        if rows and self._step:
            records = [row.record for row, _ in rows[:: self._step]]
            fingerprints: list[Any] = [
                record.fingerprint for record in records if record is not None
            ]
            tally.positions.extend(np.concatenate(fingerprints).tolist())
            tally.lengths.extend(len(fingerprint) for fingerprint in fingerprints)
        return tally


def label_columns(model: MolAttn, table: Table) -> list[int | None]:
    """Return the index of the column of each task, by its name or title; None if it is missing."""
    titles = {name: [endpoint.title] for name, endpoint in model.endpoints.items()}
    return [_column(table, [a.name, *titles.get(a.name, ())]) for a in model.config.tasks]


def _column(table: Table, names: Sequence[str]) -> int | None:
    """Return the index of the column with the first of the names that there is; None = none."""
    column_name = next((name for name in names if name and matching(name, table.header)), None)
    if column_name is None or table.header.count(matching(column_name, table.header)[0]) > 1:
        return None
    return table.column(column_name, "a target of the model")


def prediction_spec(
    model: MolAttn,
    level: float,
    neighbors: int | None = None,
    batch_size: int = 256,
    *,
    explain_confidence: bool = False,
    structure: Literal["", "block", "smiles"] = "",
    reference: "Reference | None" = None,
) -> OutputSpec:
    """Return the predictions of a model as an output; see :func:`predict_table`.

    Raises:
        InputError: A number of neighbors that the model does not have, or reasons of a confidence
            of a model that is not calibrated.
    """
    columns = PredictionColumns(model.predictor)
    names: dict[str, str] = {}
    more_cells: list[Callable[[_Predicted], Iterable[list[Any]]]] = []
    if neighbors is not None:
        model.predictor.check_neighbors(neighbors, "neighbors")
        fields = _neighbor_fields(model)
        numbers = range(1, neighbors + 1)
        prefixes = [f"{task.name}_neighbor_{n}" for task in model.config.tasks for n in numbers]
        names = {f"{prefix}_{name}": fields[name] for prefix in prefixes for name in fields}
        more_cells.append(partial(_neighbor_cells, model, neighbors, batch_size, [*fields]))
    if model.config.site_tasks:
        sites = SiteColumns(model.config, model.site_calibration, structure)
        names |= dict.fromkeys(sites.columns, "string")
        more_cells.append(partial(_site_cells, model, sites, level, batch_size))
    if outputs := model.config.written_output_indices:
        names |= {f"{model.config.output_names[n]}_of_parent": "float64" for n in outputs}
        more_cells.append(partial(_parent_cells, model))
    if explain_confidence:
        if model.uncertainty is None:
            message = "the model is not calibrated, and thus has no confidence"
            raise InputError(message, option="explain_confidence")
        names |= {f"{task.name}_confidence_reason": "string" for task in model.config.tasks}
        more_cells.append(partial(_reason_cells, model))
        tasks = [model.config.tasks[n] for n in model.predictor.tasks_with_probability_intervals]
        ends = ("low", "high")
        names |= {f"{task.output_names[0]}_{end}": "float64" for task in tasks for end in ends}
        more_cells.append(partial(_probability_cells, model, level))
    fields = model.predictor.input_fields()
    if reference is not None:
        fields = replace(fields, smiles=True)
        of_differences = difference_columns(model.config)
        if shared := of_differences.keys() & columns.columns.keys():
            message = f"{quoted(min(shared))} is a column of another target too; rename that target"
            raise InputError(message, option="difference_from")
        names |= {**of_differences, "difference_error": "string"}
        more_cells.append(partial(_difference_cells, model, fields, reference, level, batch_size))
    compute = partial(_predictions, model, columns, level, batch_size, more_cells)
    return OutputSpec("predicting", {**columns.columns, **names}, compute, fields)


def _neighbor_fields(model: MolAttn) -> dict[str, str]:
    """Return what is written of each neighbor, with its type."""
    fields = {"row": "int64", "similarity": "float64", "contribution": "float64"}
    if model.training_set and model.training_set.molecules:
        fields["smiles"] = "string"
    return fields


class Reference(NamedTuple):
    """The column of the molecules that differences are from, and the limits of these."""

    column: int
    limits: MoleculeLimits


def _reference(
    table: Table, model: MolAttn, config: PredictConfig, console: Console | None
) -> Reference | None:
    """Return the column that differences are from, if any, and print why they lack intervals."""
    if config.difference_from is None:
        return None
    model.check_predicts_molecules()
    if reason := missing_interval(model.predictor):
        print_line(console, f"no intervals of differences: {reason}")
    return Reference(table.column(config.difference_from, "--difference-from"), config)


class _Predicted(NamedTuple):
    """Molecules with a finite prediction."""

    rows: Sequence[ReadRow]
    side: Side
    outputs_of_parents: NDArray[np.float64]  # of Predictor.with_gaussian_process, [members, n, O]


def _predictions(
    model: MolAttn,
    columns: PredictionColumns,
    level: float,
    batch_size: int,
    more_cells: Sequence[Callable[[_Predicted], Iterable[list[Any]]]],
    rows: Sequence[ReadRow],
    records: list[MoleculeRecord],
) -> Iterator[Sequence[Cells] | ReasonCode]:
    features = [row.features for row in rows] if model.config.features else None
    predictor = model.predictor
    networks, inputs = predictor.networks.predict(records, batch_size, features=features)
    outputs_of_parents = predictor.with_gaussian_process(networks, inputs)
    outputs = predictor.with_written(outputs_of_parents, records, batch_size)
    is_finite = np.asarray(np.isfinite(outputs).all(axis=(0, 2)))
    finite_records = [*compress(records, is_finite)]
    prediction = predictor.prediction(outputs[:, is_finite], finite_records, level)
    labels = predictor.measured(finite_records)
    finite_inputs = inputs if is_finite.all() else inputs[np.flatnonzero(is_finite)]
    side = Side(finite_records, finite_inputs, prediction)
    finite_rows = [*compress(rows, is_finite)]
    predicted = _Predicted(finite_rows, side, outputs_of_parents[:, is_finite])
    added = [cells(predicted) for cells in more_cells]
    usable = zip(range(len(finite_records)), *added, strict=True)
    for is_usable in is_finite:
        if is_usable:
            row, *cells = next(usable)
            row_cells = columns.cells(prediction, row, labels[row])
            yield [[*row_cells, *chain.from_iterable(cells)]]
        else:
            yield "not_finite"


def _site_cells(
    model: MolAttn, columns: SiteColumns, level: float, batch_size: int, predicted: _Predicted
) -> Iterator[list[str]]:
    """Yield the lists of predictions of the atoms and bonds of each row."""
    arguments = model.networks, model.site_calibration, predicted.side.records, level, batch_size
    return columns.cells(predict_sites(*arguments), predicted.side.records)


def _sites_spec(model: MolAttn, config: PredictConfig) -> OutputSpec:
    """Return the predictions of atoms, or of bonds, as an output with a row for each."""
    level: Level = "bond" if config.bonds else "atom"
    if level not in model.config.site_tasks:
        message = f"the model predicts no {level}s; expected one of --{level}-target-columns"
        raise InputError(message, option=f"{level}s")
    sites = SiteColumns(model.config, model.site_calibration)
    classes = [task.columns[0] for task in model.config.site_tasks[level] if task.classes]
    ends = ("_1", "_2") if level == "bond" else ("",)
    columns = {f"atom{end}": "int64" for end in ends} | {f"symbol{end}": "string" for end in ends}
    columns["smiles"] = "string"
    for name, site in sites.columns.items():
        if site == level:
            columns[name] = "string" if name in classes else "float64"
    compute = partial(_site_rows, model, sites, level, config)
    return OutputSpec(f"predicting {level}s", columns, compute, Fields(symbols=True), False)


def _site_rows(
    model: MolAttn,
    columns: SiteColumns,
    level: Level,
    config: PredictConfig,
    rows: Sequence[ReadRow],
    records: list[MoleculeRecord],
) -> Iterator[Sequence[Cells]]:
    width = 2 if level == "bond" else 1  # atoms of a row
    options = records, config.interval, config.batch_size
    prediction = predict_sites(model.networks, model.site_calibration, *options)[level]
    for index, (row, record) in enumerate(zip(rows, records, strict=True)):
        sites = slice(prediction.starts[index], prediction.starts[index + 1])
        symbols, ends = site_atoms(record, level)
        values = [*columns.values(prediction, level, sites)]
        smiles = "" if row.table_row.block else row.smiles  # with its atoms in another order
        site_rows: list[Cells] = [
            [*site, *(symbols[atom] for atom in site), smiles, *numbers]
            for site, *numbers in zip(ends, *values, strict=True)
            if len(site) == width  # no bond of a hydrogen atom that is not in the graph
        ]
        yield site_rows or [[*repeat(None, 2 * width), smiles, *repeat(None, len(values))]]


def _parent_cells(model: MolAttn, predicted: _Predicted) -> Iterator[list[float | None]]:
    """Yield the predictions of the parent of each row, of tasks of molecules as written."""
    columns = model.config.written_output_indices
    values = model.predictor.values(predicted.outputs_of_parents)[:, columns]
    for record, of_parent in zip(predicted.side.records, values.tolist(), strict=True):
        yield [None] * len(columns) if record.written is None else of_parent


def _reason_cells(model: MolAttn, predicted: _Predicted) -> Iterator[list[str]]:
    """Yield the cells of each row that say what its confidence rests on."""
    return model.predictor.confidence_reasons(predicted.side.records)


def _probability_cells(
    model: MolAttn, level: float, predicted: _Predicted
) -> Iterable[list[float]]:
    """Return the ends of the intervals of probabilities of each row."""
    outputs = predicted.outputs_of_parents
    return model.predictor.probability_intervals(outputs, predicted.side.inputs, level).tolist()


def _difference_cells(
    model: MolAttn,
    fields: Fields,
    reference: Reference,
    level: float,
    batch_size: int,
    predicted: _Predicted,
) -> Iterator[list[Any]]:
    """Yield the cells of each row that say how it differs from the molecule of another column."""
    predictor = model.predictor
    smiles = [row.table_row.cells[reference.column] for row in predicted.rows]
    read = [*model.config.reader(fields, reference.limits)(smiles)]
    indices = np.flatnonzero([not isinstance(record, SmilesError) for record in read])
    rows = indices.tolist()
    records: list[Any] = [read[row] for row in rows]
    if model.config.has_partner:
        partners = [predicted.side.records[row].partner for row in rows]
        records = [replace(record, partner=x) for record, x in zip(records, partners, strict=True)]
    features = [predicted.rows[row].features for row in rows] if model.config.features else None
    others = Side.of(predictor, records, level, batch_size, features)
    compared = differences(predictor, predicted.side.rows(indices), others, level)
    cells = difference_cells(model.config, compared)
    missing = [None] * len(difference_columns(model.config))
    for record in read:
        is_error = isinstance(record, SmilesError)
        values = None if is_error else next(cells)
        code = record.code if is_error else "" if values else "not_finite"
        yield [*(values or missing), code]


def _neighbor_cells(
    model: MolAttn, count: int, batch_size: int, fields: Sequence[str], predicted: _Predicted
) -> Iterator[list[Any]]:
    """Yield the cells of each row that describe its nearest training molecules."""
    records, inputs, _ = predicted.side
    neighbors = model.predictor.neighbors(records, inputs, count, batch_size)
    for tasks in zip(*neighbors.values(), strict=True):
        yield [getattr(neighbor, name) for task in tasks for neighbor in task for name in fields]


def embed_table(
    model_folder: str | Path | MolAttn,
    source: str | Path | Table,
    output: str | Path,
    config: EmbedConfig | None = None,
    console: Console | None = None,
) -> RowCounts:
    """Embed every molecule of a table, as :meth:`molattn.MolAttn.embed` does.

    The output has all rows and columns of the table, in order, the columns ``embedding_0``,
    ``embedding_1``, ..., and ``error``, the reason code of a row without an embedding.

    With ``config.atoms`` it has a row for each atom, in the order of the input: ``row``
    (:attr:`molattn.data.table.Row.line`), ``atom`` (number in the molecule of the input, from 0),
    ``symbol`` (the element), ``smiles`` (of the molecule, standardized if the model does that), the
    embedding, and ``error``. A molecule without an embedding has one row, in which ``atom`` is
    empty.

    The arguments and errors are those of :func:`predict_table`.
    """
    config = config or EmbedConfig()
    table, model = open_with_model(source, model_folder, config, console, output)
    columns = {"atom": "int64", "symbol": "string", "smiles": "string"} if config.atoms else {}
    width = model.networks.embedding_width(atoms=config.atoms)
    columns |= {f"embedding_{index}": "float32" for index in range(width)}
    spec = OutputSpec(
        "embedding atoms" if config.atoms else "embedding",
        columns,
        partial(_embeddings, model, config),
        Fields(symbols=config.atoms),
        keeps_columns=not config.atoms,
    )
    return RowCounts.of(map_table(table, model, output, spec, config, console))


def _embeddings(
    model: MolAttn, config: EmbedConfig, rows: Sequence[ReadRow], records: list[MoleculeRecord]
) -> Iterator[Sequence[Cells] | ReasonCode]:
    embeddings = model.networks.embed(records, config.batch_size, atoms=config.atoms)
    ends = np.cumsum([record.num_atoms if config.atoms else 1 for record in records])
    molecule_vectors = np.split(embeddings, ends[:-1])
    for row, record, vectors in zip(rows, records, molecule_vectors, strict=True):
        if not np.isfinite(vectors).all():
            yield "not_finite"
        elif config.atoms:
            smiles = record.standardized or row.smiles
            named = zip(
                record.atom_numbers or (), record.symbols or (), vectors.tolist(), strict=True
            )
            yield [[number, symbol, smiles, *cells] for number, symbol, cells in named]
        else:
            yield vectors.tolist()
