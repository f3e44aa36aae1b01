"""A table that is written in parts, so that an interrupted run can be resumed.

While a table ``NAME`` is written, ``NAME.unfinished`` holds what the run is, in ``run.json``, and
its rows, uncompressed, in parts of 10,000 or of those of 30 seconds. The name of a part is the
number of rows of the input that are done with it. Its first line has the number of its own rows of
the input and the SHA-256 of the number of rows before it and of the lines after it: what was
counted in its rows, and the rows. Each part is written whole or not at all, and at the end they are
joined.
"""

import json
import re
import shutil
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
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

_RUN = "run.json"
_OWN = re.compile(r"run\.json|\d+\.rows|\..*\.part")  # names of files in the folder
# A part ends when it has any of these.
_MOST_ROWS = 10_000
_MOST_BYTES = 2**24
_MOST_SECONDS = 30.0


def _numbers() -> "array[float]":
    return array("d")


@dataclass
class Tally:
    """Counts in rows of a table of molecules.

    Args:
        with_output: Rows with an output.
        errors: Rows without an output, by reason code.
        groups: Rows with stereo groups, which are not read.
        parents: Rows whose molecule is replaced by its parent.
        redrawn: Rows whose molecule is read in another drawing.
        seconds: Time of computing and writing.
        confidence: Predictions by confidence.
        unlabeled: Atoms and bonds of elements that had no label in the training, by column.
        unusable: Labels that cannot be read, by task.
        censored: Censored labels, by task.
        trained: Labeled molecules with the fingerprint of a training molecule.
        labeled: Outputs and labels of the rows with a label, row after row.
        positions: Positions of the bits of fingerprints, one fingerprint after another.
        lengths: Number of bits of each of these fingerprints.
    """

    with_output: int = 0
    errors: Counter[str] = field(default_factory=Counter[str])
    groups: int = 0
    parents: int = 0
    redrawn: int = 0
    seconds: float = 0.0
    confidence: Counter[str] = field(default_factory=Counter[str])
    unlabeled: Counter[str] = field(default_factory=Counter[str])
    unusable: Counter[str] = field(default_factory=Counter[str])
    censored: Counter[str] = field(default_factory=Counter[str])
    trained: int = 0
    labeled: "array[float]" = field(default_factory=_numbers)
    positions: "array[float]" = field(default_factory=_numbers)
    lengths: "array[float]" = field(default_factory=_numbers)

    def add(self, more: "Tally") -> None:
        """Add the counts in other rows."""
        for name, value in vars(more).items():
            total = getattr(self, name)
            if isinstance(total, Counter):
                total.update(value)
            elif isinstance(total, array):
                total.extend(value)
            else:
                setattr(self, name, total + value)


class OutputFile:
    """A table that is being written: of ``rows`` of the input, in which ``tally`` was counted."""

    def __init__(self, write: Callable[..., None]) -> None:
        self.write = write
        self.rows = 0
        self.tally = Tally()

    def commit(self, rows: int, tally: Tally) -> None:
        """Count the rows of a block of the input that is written."""
        self.rows += rows
        self.tally.add(tally)


class _Parts(OutputFile):
    """A table whose rows are kept in parts."""

    def __init__(self, path: Path, folder: Path, header: Sequence[str]) -> None:
        self._path = path
        self._folder = folder
        self._buffer = BytesIO()
        make: Any = output_format(path).write
        super().__init__(make(self._buffer, header, None).write)
        for file in sorted(folder.glob("*.rows")):
            head, _, content = file.read_bytes().partition(b"\n")
            if head != _head(self.rows, int(file.stem), content):
                damage = f"got {file}, which is damaged or not the part after row {self.rows}"
                raise InputError(f"{damage}; run the command without it", option="resume")
            self.tally.add(Tally(**json.loads(content.partition(b"\n")[0])))
            self.rows = int(file.stem)
        if self.rows:  # the header is in the first part
            self._buffer.truncate(self._buffer.seek(0))
        self._first = self.rows
        self._tally = Tally()
        self._start = time.monotonic()

    def commit(self, rows: int, tally: Tally) -> None:
        """Count the rows of a block, which is written to the disk together with later blocks."""
        super().commit(rows, tally)
        self._tally.add(tally)
        is_old = time.monotonic() - self._start > _MOST_SECONDS
        if is_old or self.rows - self._first >= _MOST_ROWS or self._buffer.tell() > _MOST_BYTES:
            counts = json.dumps(vars(self._tally), default=list).encode() + b"\n"
            content = counts + self._buffer.getvalue()
            head = _head(self._first, self.rows, content) + b"\n"
            write_file(self._folder / f"{self.rows:012}.rows", head + content)
            self._buffer.truncate(self._buffer.seek(0))
            self._first = self.rows
            self._tally = Tally()
            self._start = time.monotonic()

    def finish(self) -> None:
        """Join the parts, and the rows after them."""
        with output_stream(self._path) as output:
            for path in sorted(self._folder.glob("*.rows")):
                with open(path, "rb") as file:
                    file.readline()
                    file.readline()
                    shutil.copyfileobj(file, output)
            output.write(self._buffer.getvalue())


def _head(start: int, stop: int, content: bytes) -> bytes:
    digest = sha256(b"%d\n" % start + content)
    return f"{stop - start} {digest.hexdigest()}".encode()


@contextmanager
def open_output(
    output: Path | IO[bytes],
    header: Sequence[str],
    schema: Any,
    identity: Callable[[], Mapping[str, Any]],
    resume: bool,
    console: Console,
) -> Iterator[OutputFile]:
    """Write a table, whole or not at all; if that is interrupted, its parts are kept.

    With ``resume`` it goes on with the rows of an interrupted run, otherwise they are replaced. A
    binary stream gets CSV. ``identity`` returns what identifies the run, as JSON types: SHA-256 of
    its ``model`` and ``input``, ``options`` and ``versions``.

    Raises:
        InputError: The table cannot be written, another process writes it, the interrupted run is
            another one, a part of it is damaged or missing, or there is none and the table is
            finished.
    """
    if not (isinstance(output, Path) and output_format(output).is_resumable):
        with write_table(output, header, schema) as write:
            yield OutputFile(write)
        return
    folder = _folder(output)
    run = identity()
    hint = resume_hint(output).partition(";")[0]
    if resume and output.exists() and not hint:
        message = f"got an interrupted run of {output}, but {folder} does not exist"
        raise InputError(message, option="resume")
    check_output_folder(folder, "an interrupted run", lambda name: bool(_OWN.fullmatch(name)))
    folder.mkdir(exist_ok=True)
    with locked(folder):
        if hint and resume:
            _check_same(folder, run, console)
        else:
            if hint:
                print_line(console, f"replaced, as --resume is not given: {hint}")
            for path in folder.glob("*.rows"):
                path.unlink()
            write_json(folder / _RUN, run)
        file = _Parts(output, folder, header)
        if file.rows:
            print_line(console, f"resuming: {hint}")
        try:
            yield file
            file.finish()
        except BaseException as error:
            if not resume_hint(output, error):
                shutil.rmtree(folder, ignore_errors=True)
            raise
        (folder / _RUN).unlink()  # first: then there is nothing to resume
        shutil.rmtree(folder, ignore_errors=True)


def _check_same(folder: Path, now: Mapping[str, Any], console: Console) -> None:
    was = read_json(folder / _RUN)
    check_same_values(was["options"], now["options"], folder)
    check_same_digest("MODEL: the model has", now["model"], was["model"], folder)
    check_same_digest("INPUT: the table has", now["input"], was["input"], folder)
    for line in version_changes(was["versions"]):
        print_line(console, line)


def resume_hint(path: Path, error: BaseException | None = None) -> str:
    """Return how many rows of an interrupted table are kept and how to resume it, "" if none.

    After an ``error`` in the input it cannot be resumed.
    """
    folder = _folder(path)
    paths = sorted(folder.glob("*.rows")) if (folder / _RUN).exists() else []
    if not paths or is_of_input(error):
        return ""
    rows = counted(int(paths[-1].stem), "row")
    return f"{rows} kept in {folder}; to resume: the same command with --resume"


def _folder(path: Path) -> Path:
    return path.with_name(path.name + UNFINISHED)
