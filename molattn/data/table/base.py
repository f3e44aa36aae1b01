"""Tables as rows that know their line, the files they are read from, and the writer of rows."""

import codecs
import hashlib
import io
import os
import re
import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

from molattn.errors import InputError, ReasonCode, SmilesError, did_you_mean, matching, quoted
from molattn.utils.console import counted

if TYPE_CHECKING:
    from molattn.task import Task

MOST_COLUMNS = 20_000
MOST_CHARACTERS = 2**25
"""In a cell or a mol block; an unclosed quote or a binary file exceeds it."""
# The same for reading and writing, so that bytes which are not UTF-8 are written as they were read.
ENCODING_ERRORS = "surrogateescape"
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
"""Suffixes of compressed text, and pyarrow's name of the compression."""
_SIGNATURES = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_ESCAPED = re.compile("[\udc80-\udcff]+")  # bytes that are not UTF-8
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SAMPLE = 4096
# A table is rarely compressed to less than a hundredth; the limit of gzip is a thousandth.
_LARGEST_EXPANSION = 200
_ANY_EXPANSION = 2**22  # bytes
_COLUMNS_SHOWN = 10
SMILES = "smiles"
SMILES_NAMES = "canonicalsmiles", "isomericsmiles", "smilesstring", "structure", "molecule", "mol"
_NAMES = (
    "name compoundname moleculename drugname title compoundid moleculeid id compound drug".split()
)
_STRUCTURE_ROWS = 50  # of which nine in ten are molecules, in a column of structures
_NUMBER = r"[+-]?(?:(?:\d+|\d{1,3}(?:,\d{3})+)(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?%?"
# Between a number and its uncertainty; also the byte of Windows-1252.
PLUS_MINUS = r"\s*(?:±|\udcb1|\+/?-)\s*"
_DECIMAL = re.compile(
    rf"(?=.*\d)[<>=~≥≤\s]*[+-]?\d*[.,]?\d*([eE][+-]?\d+)?({PLUS_MINUS}\d*[.,]?\d*)?"
)
_THOUSANDS = re.compile(r"[<>=~≥≤\s]*[+-]?[1-9]\d{0,2},\d{3}")  # or a decimal comma
_FORMS = {"comma": "decimal comma", "percentage": "percentage, read as shown (82% is 82)"}
_SEPARATED = re.compile(rf"(?=.*\d)[<>=~≥≤\s]*[+-]?[\d.,]+([eE][+-]?\d+)?({PLUS_MINUS}[\d.,]+)?")
_STEREO_GROUPS = re.compile(r"\|.*?(?:&|\bo)\d*:|MDLV30/STE(?:RAC|REL)")
_FORMULA = re.compile(rf"(?!{_NUMBER}\Z)[=+\-@\uff1d\uff0b\uff0d\uff20\t\r\n].", re.DOTALL)


class Source:
    """The file of a table: plain or compressed, and text in UTF-8 or UTF-16."""

    def __init__(self, file: str | Path | IO[bytes], name: str = "") -> None:
        if isinstance(file, str | Path):
            self.path = Path(file)
            self.name = Path(name or file)
            if not os.path.isfile(file):  # a pipe could block a reader for ever
                what = "expected a file" if os.path.exists(file) else "no such file"
                text = str(self.name)
                raise InputError(f"{text if text.isprintable() else quoted(text)}: {what}")
        else:
            descriptor, path = tempfile.mkstemp(prefix="molattn-")
            weakref.finalize(self, os.unlink, path)
            with open(descriptor, "wb") as copy:
                shutil.copyfileobj(file, copy)
            self.path = Path(path)
            self.name = Path(name or "file")
        with self.open() as content:
            self.start = content.read(_SAMPLE)
        self.is_utf_16 = self.start.startswith(_UTF_16)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the file, decompressed if it is gzip or Zstandard."""
        try:
            with open(self.path, "rb") as file:
                start = file.read(4)
                file.seek(0)
                kind = next(
                    (k for signature, k in _SIGNATURES.items() if start.startswith(signature)), None
                )
                if kind is None:
                    yield file
                    return
                import pyarrow as pa  # slow to import

                with pa.CompressedInputStream(file, kind) as content:
                    yield content
        except OSError as error:
            reason = error.strerror or f"damaged or incomplete: {error}"
            raise InputError(f"{self.name}: {reason}") from error

    @contextmanager
    def open_text(self) -> Iterator[IO[str]]:
        """Open the file as text: UTF-8, or UTF-16 with a byte-order mark.

        Lines keep their ends: a line feed, a carriage return or both.
        """
        encoding = "utf-8-sig"
        errors = ENCODING_ERRORS
        if self.is_utf_16:  # of which half a character cannot be kept as a byte
            encoding = "utf-16"
            errors = "replace"
        with (
            self.open() as data,
            io.TextIOWrapper(data, encoding=encoding, errors=errors, newline="") as text,
        ):
            yield text

    def check_text(self) -> None:
        """Check that the file can be read as text; a compressed one is decompressed once."""
        if 10 * self.start.count(0) > len(self.start) and not self.is_utf_16:
            raise InputError(f"{self.name}: got binary data, expected text in UTF-8")
        size = 0
        with self.open() as file:
            while not isinstance(file, io.BufferedReader) and (chunk := file.read(2**20)):
                size += len(chunk)
                self.check_expansion(size)

    def check_expansion(self, size: int) -> None:
        """Check that a compressed file does not expand without limit."""
        if size > max(_ANY_EXPANSION, _LARGEST_EXPANSION * self.path.stat().st_size):
            raise InputError(
                f"{self.name}: the compressed file expands to more than {_LARGEST_EXPANSION} times "
                "its size; decompress it if that is intended"
            )


class Uncalculated(str):
    """The empty text of a cell whose formula has no stored value."""


class MoleculeText(str):
    """The canonical SMILES of an RDKit molecule in a cell, which has its own order of atoms."""

    mol: Any = None


class Row(NamedTuple):
    """One row of a table.

    ``line`` is where it begins, counted from 1: the line of a text file (the header is line 1), the
    row of a Parquet file. ``molecule`` is what the SMILES of the first column stands for: the mol
    block of an SDF record, or the :class:`molattn.chem.reader.PreparedMolecule` of a store.
    """

    line: int
    cells: list[str]  # one text for each column
    code: ReasonCode | Literal[""] = ""  # of a row that cannot be read as intended
    reason: str = ""  # the same as a sentence
    values: tuple[Any, ...] | None = None  # the cells, if they have types other than text
    molecule: Any = None
    commas: Collection[int] = ()  # indices of the cells whose numbers have a decimal comma

    def numeral(self, column: int) -> str:
        """Return a cell with a decimal point; text with a point beside the comma is no number."""
        cell = self.cells[column]
        if column not in self.commas or not _DECIMAL.fullmatch(cell.strip()):
            return cell
        return f"{cell} (--decimal ,)" if "." in cell else cell.replace(",", ".")

    def checked(self, columns: Sequence[int]) -> "Row":
        """Return the row, with a reason code if one of the cells is an uncalculated formula."""
        if self.code or not any(isinstance(self.cells[column], Uncalculated) for column in columns):
            return self
        return self._replace(code="uncalculated", reason="a formula has no stored value")

    @property
    def block(self) -> str:
        """The mol block, or an empty text."""
        return self.molecule if isinstance(self.molecule, str) else ""

    def structure(self, column: int) -> Any:
        """Return the structure in a column: a prepared molecule, or the text of the cell."""
        is_prepared = column == 0 and not isinstance(self.molecule, str | None)
        return self.molecule if is_prepared else self.cells[column]

    def has_stereo_groups(self, smiles: str) -> bool:
        """Return whether the mol block or the SMILES has stereo groups of type AND or OR."""
        return _STEREO_GROUPS.search(self.block or smiles) is not None


class Table(ABC):
    """Rows; each iteration reads them from the start.

    Args:
        source: The file.

    Attributes:
        path: Its name in messages.
        header: Names of the columns.
        unit: What ``Row.line`` counts: ``line`` or ``row``.
        schema: The columns' types (a ``pyarrow.Schema``), if the file has them.
        remarks: Properties found in the file that its name does not show, for the log.
        has_sheets: Whether the file has sheets to choose from.
        commas: Indices of the columns in which texts are numbers with a decimal comma.
        forms: The number of cells of each column by their :func:`number_form`, or ``percentage``,
            if the file is read when it is opened.
        prepared: How the molecules of a store were read (a
            :class:`molattn.chem.reader.Preparation`); None = it is no store.
        tasks: The task of each target, of a trained model; by default labels tell it.
    """

    source: Any = None
    path: Path
    header: list[str]
    unit = "line"
    schema: Any = None
    remarks: tuple[str, ...] = ()
    has_sheets: bool = False
    commas: Collection[int] = ()
    forms: Mapping[tuple[int, str], int] = Counter()
    prepared: Any = None
    tasks: "Sequence[Task]" = ()

    def __init__(self, source: Source) -> None:
        self.source = source
        self.path = source.name

    def use(self, options: Any, *columns: str) -> None:
        """Read the file by the options of a command (:class:`molattn.config.data.FileOptions`).

        Texts are numbers with a decimal comma where the options say so, or where all numbers of a
        column that are texts have this form in a file that tells it.

        Args:
            options: The options of the file, and options that name columns.
            columns: Names of other columns that are needed.
        """
        forms = self.forms
        commas = [key[0] for key in forms if key[1] == "comma" and not forms[key[0], "other"]]
        self.commas = range(len(self.header)) if options.decimal == "," else commas
        counts = {(key, "comma"): forms[key, "comma"] + forms[key, "thousands"] for key in commas}
        counts |= {key: count for key, count in forms.items() if key[1] == "percentage"}
        for (column, form), count in sorted(counts.items()):
            cells = f"{counted(count, 'cell')} of column {quoted(self.header[column])}"
            self.remarks = (*dict.fromkeys((*self.remarks, f"{cells} with a {_FORMS[form]}")),)

    def text_commas(self, values: Sequence[Any]) -> list[int]:
        """Return the columns of decimal commas in which the value is a text."""
        return [column for column in self.commas if isinstance(values[column], str)]

    @abstractmethod
    def __iter__(self) -> Iterator[Row]:
        """Read the rows."""

    def count(self) -> int:
        """Return the number of rows; by default they are all read."""
        return sum(1 for _ in self)

    def digest(self) -> str:
        """Return the SHA-256 of the file, or else of the header and the cells, in hexadecimal."""
        if self.source is not None:
            with open(self.source.path, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        digest = hashlib.sha256()
        for cells in (self.header, *(row.cells for row in self)):
            digest.update(ascii(cells).encode())
        return digest.hexdigest()

    def check_featurizer(self, featurizer: Any) -> None:  # noqa: B027 (a file has no molecules)
        """Check that prepared molecules have the features of a featurizer."""

    def where(self, line: int) -> str:
        """Return a row's name for messages, such as ``line 7``."""
        return f"{self.unit} {line}"

    def column(self, name: str, option: str) -> int:
        """Return the index of a column.

        In place of ``smiles``, the default, that no column is named, it is the only column of
        structures: of the first 50 cells that are not empty at least nine in ten are SMILES, and
        half have three atoms or more, which is enough for one that is named ``canonical_smiles``,
        ``isomeric_smiles``, ``smiles_string``, ``structure``, ``molecule`` or ``mol``, whatever the
        letter case, spaces and signs. Of several, it is the first of these names. A column of InChI
        counts if there is none of SMILES.
        """
        names = matching(name, self.header)
        if len(names) > 1:
            raise InputError(
                f"{self.path}: got {quoted(name)} ({option}), expected one of {listed(names)}"
            )
        name = names[0] if names else name
        if (count := self.header.count(name)) == 1:
            return self.header.index(name)
        if count:
            raise InputError(
                f"{self.path}: {count} columns are named {quoted(name)} ({option}), expected one"
            )
        if name == SMILES and (structures := self._structure_column()) is not None:
            remark = f"structures are read from column {quoted(self.header[structures])}"
            self.remarks = (*{**dict.fromkeys(self.remarks), remark: None},)
            return structures
        hint = did_you_mean(name, self.header)
        raise InputError(
            f"{self.path}: no column {quoted(name)} ({option}); the columns are "
            f"{listed(self.header)}{hint}"
        )

    def _structure_column(self) -> int | None:
        from molattn.chem.grammar import INCHI  # RDKit is slow to import

        rows = [row.cells for row in islice(self, _STRUCTURE_ROWS) if not row.code]
        smiles_columns = dict[int, str]()
        inchi_columns = dict[int, str]()
        for index, cells in enumerate(zip(*rows, strict=True)):
            sizes = [_atoms(cell) for cell in cells if cell.strip()]
            is_named = first_named(SMILES_NAMES, {index: self.header[index]}) is not None
            is_read = is_named or 10 * sum(size > 0 for size in sizes) >= 9 * len(sizes)
            if sizes and is_read and 2 * sum(size > 2 for size in sizes) >= len(sizes):
                kind = inchi_columns if any(map(INCHI.match, cells)) else smiles_columns
                kind[index] = self.header[index]
        smiles_columns = smiles_columns or inchi_columns
        return (
            next(iter(smiles_columns))
            if len(smiles_columns) == 1
            else first_named(SMILES_NAMES, smiles_columns)
        )

    def check_header(self) -> None:
        """Check the number of columns and their names."""
        if self.header in ([], [""]):
            raise InputError(f"{self.path}: the file is empty, expected a header and rows")
        if any("\0" in name for name in self.header):
            raise InputError(f"{self.path}: got binary data, expected a table (text in UTF-8)")
        if (count := len(self.header)) > MOST_COLUMNS:
            raise InputError(f"{self.path}: got {count} columns, expected at most {MOST_COLUMNS}")

    def row(self, line: int, cells: list[str], delimiter: str, values: Any = None) -> Row:
        """Return a row as wide as the header.

        Empty surplus cells are dropped. A row with too few cells is padded, the surplus of one with
        too many is joined into the last cell; both are ``ragged``.
        """
        width = len(self.header)
        while len(cells) > width and not cells[-1]:
            cells.pop()
        if len(cells) == width:
            commas = self.commas if values is None else self.text_commas(values)
            return Row(line, cells, values=values, commas=commas)
        reason = f"the row has {len(cells)} cells, the header has {width}"
        joined = [*cells[: width - 1], delimiter.join(cells[width - 1 :])]
        return Row(line, joined + [""] * (width - len(joined)), "ragged", reason)


def is_structure(cell: str) -> bool:
    """Return whether a cell is a SMILES or begins like an InChI."""
    return _atoms(cell) > 0


def _atoms(cell: str) -> int:
    from molattn.chem.grammar import INCHI  # RDKit is slow to import
    from molattn.chem.parse import parse_smiles

    if INCHI.match(cell):  # not read, which takes longer
        return 3
    try:
        return parse_smiles(cell).GetNumAtoms()
    except SmilesError:
        return 0


def number_form(text: str) -> str:
    """Return the form of a number with a separator.

    ``comma`` is a decimal comma, ``thousands`` may be one or separate thousands, ``other`` is any
    other number, and an empty text one without a separator or no number.
    """
    if "," in text and "." not in text and _DECIMAL.fullmatch(text.strip()):
        return "thousands" if _THOUSANDS.fullmatch(text.strip()) else "comma"
    return "other" if ("," in text or "." in text) and _SEPARATED.fullmatch(text.strip()) else ""


class SMILESList(Table):
    """SMILES as a table of one column."""

    path = Path("INPUT")
    unit = "SMILES"

    def __init__(self, smiles: Sequence[str], column: str = "smiles") -> None:
        self.header = [column]
        self._smiles = smiles

    def __iter__(self) -> Iterator[Row]:
        """Read the SMILES."""
        return (Row(number, [text]) for number, text in enumerate(self._smiles, start=1))


class TableWriter(ABC):
    """Writes the rows of a table to an open file; the header is written when it is made."""

    @abstractmethod
    def write(self, cells: Sequence[object], structure: str = "") -> None:
        """Write a row.

        Args:
            cells: A value for each column; None is an empty cell.
            structure: The SMILES or mol block of its molecule, for a format that draws it.
        """

    def close(self) -> None:  # noqa: B027 (most formats do not buffer)
        """Write the buffered rows; the file itself stays open."""


def cell_text(value: Any) -> str:
    """Return a value as the text of a cell.

    None is an empty text, a whole number has no decimal point, any other number is the shortest
    text that reads back as the same number, and midnight without a time zone is the date alone. A
    list has its numbers as in Python.
    """
    if value is None:
        return ""
    if isinstance(value, list | tuple) or getattr(value, "ndim", 0):  # not np.float64(1.5)
        value = [number.tolist() if hasattr(number, "tolist") else number for number in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, datetime) and value.isoformat().endswith("T00:00:00"):
        value = value.date()
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    return str(value)


def free_name(name: str, taken: Sequence[str]) -> str:
    """Return the name of a new column: underscores are added until no other column has it."""
    while name in taken:
        name += "_"
    return name


def first_named(names: Sequence[str], columns: dict[int, str]) -> int | None:
    """Return the column whose name is the first in a list, by letters and digits alone."""
    plain = {re.sub(r"[\W_]", "", name).lower(): index for index, name in reversed(columns.items())}
    return next((plain[name] for name in names if name in plain), None)


def name_column(header: Sequence[str]) -> int | None:
    """Return the index of the column of the molecules' names, such as ``Compound ID``."""
    return first_named(_NAMES, dict(enumerate(header)))


def listed(names: Sequence[str]) -> str:
    """Return the names in quotes, only the first ten if there are more."""
    more = len(names) - _COLUMNS_SHOWN
    text = ", ".join(quoted(name) for name in names[:_COLUMNS_SHOWN])
    return f"{text} and {more} more" if more > 0 else text


def escape_formula(text: str) -> str:
    """Return the text, after an apostrophe if a spreadsheet would take it for a formula.

    That is a text, other than a number such as ``-1.5``, that begins with ``=``, ``+``, ``-``,
    ``@`` (or a full-width form of these), a tab, a carriage return or a line feed.

    Source: OWASP, CSV Injection.
    """
    return f"'{text}" if _FORMULA.match(text) else text


def valid_text(text: str) -> str:
    """Return a text with bytes that are not UTF-8 read as Windows-1252."""
    return _ESCAPED.sub(
        lambda match: match[0].encode(errors=ENCODING_ERRORS).decode("cp1252", errors="replace"),
        text,
    )
