"""Learned embeddings of the molecules in a table."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console

from molattn.config import EmbedConfig
from molattn.data.table import Table, open_table
from molattn.errors import ReasonCode
from molattn.inference.streaming import (
    Cells,
    OutputSpec,
    ReadRow,
    Reads,
    RowCounts,
    check_stream,
    open_with_model,
    stream_table,
)
from molattn.model.model import MolAttn

__all__ = ["fingerprint_table"]


def fingerprint_table(
    model_folder: str | Path | MolAttn,
    source: str | Path | Table,
    output: str | Path,
    config: EmbedConfig | None = None,
    console: Console | None = None,
) -> RowCounts:
    """Embed every molecule of a table, as :meth:`molattn.MolAttn.embed` does.

    The output has all rows and columns of the table, in order, the columns ``embedding_0``,
    ``embedding_1``, ..., and ``error``, the reason code of a row without an embedding.

    With ``config.atoms`` it has a row for each atom, in the order of the input: ``row`` (number of
    the input row, from 1), ``atom`` (number in the molecule of the input, from 0), ``symbol`` (the
    element), ``smiles`` (of the molecule, standardized if the model does that), the embedding, and
    ``error``. A molecule without an embedding has one row, in which ``atom`` is empty.

    Args:
        model_folder: The folder of a run or of a saved model, or a model.
        source: The table, in any format that :func:`molattn.data.table.open_table` reads, or an
            open one.
        output: The file to write, in the format of its name; an existing file is replaced.
        config: The options.
        console: Where to show progress; None = nowhere.

    Raises:
        InputError: The model, the table or the output cannot be used.
    """
    config = config or EmbedConfig()
    table = open_table(source)
    check_stream(table, output, config)
    table, model = open_with_model(table, model_folder, config, console)
    spec = _embedding_spec(model, config.atoms)
    return RowCounts.of(stream_table(table, model, output, spec, config, console))


def _embedding_spec(model: MolAttn, atoms: bool) -> OutputSpec:
    columns = {"atom": "int64", "symbol": "string", "smiles": "string"} if atoms else {}
    width = model.embedding_width(atoms=atoms)
    columns |= {f"embedding_{index}": "float32" for index in range(width)}
    return OutputSpec(
        "embedding atoms" if atoms else "embedding",
        columns,
        partial(_embeddings, model, atoms),
        Reads(numbers=False, atoms=atoms),
        keeps_columns=not atoms,
    )


def _embeddings(
    model: MolAttn, atoms: bool, molecules: Sequence[ReadRow]
) -> Iterator[Sequence[Cells] | ReasonCode]:
    records = [molecule.record for molecule in molecules if molecule.record is not None]
    embeddings = model.embed_records(records, len(records), atoms=atoms)
    ends = np.cumsum([record.num_atoms if atoms else 1 for record in records])
    for molecule, record, rows in zip(
        molecules, records, np.split(embeddings, ends[:-1]), strict=True
    ):
        if not np.isfinite(rows).all():
            yield "not_finite"
        elif atoms:
            smiles = record.standardized or str(molecule.smiles)
            named = zip(record.atom_numbers or (), record.symbols or (), rows.tolist(), strict=True)
            yield [[number, symbol, smiles, *row] for number, symbol, row in named]
        else:
            yield rows.tolist()
