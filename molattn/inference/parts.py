"""A table that is written in parts, so that an interrupted run can be resumed.

While a table ``NAME`` is written, ``NAME.unfinished`` holds what the run is, in ``run.json``, and
its rows, uncompressed, in parts of 10,000 or of those of 30 seconds. A part is written whole or not
at all. Its name is the number of rows of the input that are done with it; its first line is what
was counted in its rows, which follow. At the end the parts are joined.
"""

import json
import re
import shutil
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from rich.console import Console

from molattn.config.base import check_same_digest, check_same_values
from molattn.data.table import output_format, output_stream, write_table
from molattn.errors import InputError, is_of_input
from molattn.utils.console import counted, print_line
from molattn.utils.files import (
    UNFINISHED,
    check_output_folder,
    locked,
    read_json,
    write_file,
    write_json,
)
from molattn.version import version_changes

__all__ = ["OutputFile", "Tally", "open_output", "resume_hint"]

_RUN = "run.json"
_OWN = r"run\.json|\d+\.rows|\..*\.part"  # names of files in the folder
_MOST_ROWS, _MOST_BYTES, _MOST_SECONDS = 10_000, 2**24, 30.0  # of a part


@dataclass
class Tally:
    """What is counted in the rows of a table.

    Args:
        counts: Numbers of rows by kind, such as ``error``, and name, such as the reason code.
        labeled: The outputs of the model and the labels of each row with a label, joined.
        examples: The first cell that is not usable, by the name of its target.
        seconds: The time that it took.
    """

    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    labeled: "array[float]" = field(default_factory=lambda: array("d"))
    examples: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def count(self, kind: str, name: str = "", number: int = 1) -> None:
        """Count a row."""
        names = self.counts.setdefault(kind, {})
        names[name] = names.get(name, 0) + number

    def number(self, kind: str) -> int:
        """Return the number of rows of a kind."""
        return sum(self.counts.get(kind, {}).values())

    def add(self, other: "Tally") -> None:
        """Add what was counted in the rows after these."""
        for kind, names in other.counts.items():
            for name, number in names.items():
                self.count(kind, name, number)
        self.labeled += other.labeled
        self.examples = {**other.examples, **self.examples}
        self.seconds += other.seconds


class OutputFile:
    """A file that gets its name when it is whole; if that is interrupted, nothing is left.

    Args:
        write: Writes a row.

    Attributes:
        rows: Number of rows of the input that are done.
        tally: What was counted in them.
    """

    def __init__(self, write: Callable[..., None]) -> None:
        self.write, self.rows, self.tally = write, 0, Tally()

    def commit(self, rows: int, tally: Tally) -> None:
        """Keep the rows of a block of the input, and what was counted in them."""
        self.rows += rows
        self.tally.add(tally)


class _Parts(OutputFile):
    """A file whose rows are kept in parts."""

    def __init__(self, path: Path, folder: Path, header: Sequence[str]) -> None:
        self._folder, self._buffer = folder, BytesIO()
        make: Any = output_format(path).write
        super().__init__(make(self._buffer, header, None).write)
        for part in _parts(folder):
            with open(part, "rb") as file:
                head = json.loads(file.readline())
            self.tally.add(Tally(**{**head, "labeled": array("d", head["labeled"])}))
            self.rows = int(part.stem)
        self._new_part(has_header=self.rows == 0)

    def _new_part(self, has_header: bool) -> None:
        if not has_header:  # it is in the first part
            self._buffer.seek(0)
            self._buffer.truncate()
        self._first, self._tally, self._start = self.rows, Tally(), time.monotonic()

    def commit(self, rows: int, tally: Tally) -> None:
        """Keep the rows of a block; they reach the disk with those of other blocks."""
        super().commit(rows, tally)
        self._tally.add(tally)
        is_old = time.monotonic() - self._start > _MOST_SECONDS
        if self.rows - self._first >= _MOST_ROWS or self._buffer.tell() > _MOST_BYTES or is_old:
            head = json.dumps(asdict(self._tally), default=list).encode()
            path = self._folder / f"{self.rows:012}.rows"
            write_file(path, head + b"\n" + self._buffer.getvalue())
            self._new_part(has_header=False)

    def finish(self, path: Path) -> None:
        """Join the parts, and the rows after them."""
        with output_stream(path) as output:
            for part in _parts(self._folder):
                with open(part, "rb") as file:
                    file.readline()
                    shutil.copyfileobj(file, output)
            output.write(self._buffer.getvalue())


@contextmanager
def open_output(
    output: Path | IO[bytes],
    header: Sequence[str],
    schema: Any,
    run: Callable[[], Mapping[str, Any]],
    resume: bool,
    console: Console,
) -> Iterator[OutputFile]:
    """Write a table; if that is interrupted, it can be resumed.

    When the block ends, the table has its name. After an exception its parts are kept, unless its
    format cannot be resumed, or the input is wrong: it is another one once corrected.

    Args:
        output: The table; an existing file is replaced. A binary stream gets CSV.
        header: The columns.
        schema: Their types, of :func:`molattn.data.table.output_schema`.
        run: Returns what identifies the run, as JSON types: SHA-256 of its ``model`` and ``input``,
            ``options`` and ``versions``.
        resume: Whether to go on with the rows of an interrupted run; otherwise they are replaced.
        console: Where to report it.

    Raises:
        InputError: The table cannot be written, another process writes it, the interrupted run is
            another one, or there is none and the table is finished.
    """
    if not (isinstance(output, Path) and output_format(output).is_resumable):
        with write_table(output, header, schema) as write:
            yield OutputFile(write)
        return
    with _locked(output) as folder:
        _begin(output, folder, run(), resume, console)
        try:
            parts = _Parts(output, folder, header)
            yield parts
            parts.finish(output)
        except InputError as error:
            if is_of_input(error):
                _remove(folder)
            raise
        _remove(folder)


def resume_hint(path: Path, error: BaseException | None = None) -> str:
    """Return how many rows of an interrupted table are kept and how to resume it, "" if none.

    After an ``error`` in the input it cannot be resumed.
    """
    folder = _folder(path)
    if is_of_input(error) or not (parts := _parts(folder)):
        return ""
    rows = counted(int(parts[-1].stem), "row")
    return f"{rows} kept in {folder}; to resume: the same command with --resume"


def _folder(path: Path) -> Path:
    return path.with_name(path.name + UNFINISHED)


def _parts(folder: Path) -> list[Path]:
    """Return the parts of a run, in order."""
    return sorted(folder.glob("*.rows")) if (folder / _RUN).exists() else []


@contextmanager
def _locked(path: Path) -> Iterator[Path]:
    """Make the folder of a run, which no other process uses; remove it if it has no parts."""
    folder = _folder(path)
    check_output_folder(folder, "an interrupted run", lambda name: bool(re.fullmatch(_OWN, name)))
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    with locked(folder):
        try:
            yield folder
        finally:
            with suppress(OSError):
                if not _parts(folder):
                    shutil.rmtree(folder)


def _begin(
    path: Path, folder: Path, run: Mapping[str, Any], resume: bool, console: Console
) -> None:
    """Write what a run is, or check that it is the one that was interrupted."""
    kept = resume_hint(path)
    if kept and resume:
        was = read_json(folder / _RUN)
        check_same_values(was["options"], run["options"], folder)
        check_same_digest("MODEL: the model has", run["model"], was["model"], folder)
        check_same_digest("INPUT: the table has", run["input"], was["input"], folder)
        for line in (*version_changes(was["versions"]), f"resuming: {kept.partition(';')[0]}"):
            print_line(console, line)
        return
    if resume and path.exists():
        raise InputError(
            f"--resume: {path} exists, and there is no interrupted run ({folder}) to go on with; "
            "leave out --resume to replace it"
        )
    if kept:
        print_line(console, f"replaced, as --resume is not given: {kept.partition(';')[0]}")
    for part in folder.glob("*.rows"):
        part.unlink()
    write_json(folder / _RUN, run)


def _remove(folder: Path) -> None:
    with suppress(OSError):  # the table is whole
        (folder / _RUN).unlink()  # first: then there is nothing to resume
    shutil.rmtree(folder, ignore_errors=True)
