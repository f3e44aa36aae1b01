"""The output of an interrupted run, and how to go on with it.

While a table ``NAME`` is written, its rows are in ``NAME.unfinished/rows``, uncompressed, beside a
journal. The first line of the journal says what the run is: model, input, options. Each further
line is an entry: how many rows of the input are done, the size of the file of rows and the CRC of
its content, and what the run has counted since the entry before. Rows are added before their entry,
so that the last entry which the file of rows bears out is where a killed run is resumed.
"""

import json
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from rich.console import Console

from molattn.config.base import check_same_digest, check_same_values
from molattn.data.table import move_rows
from molattn.errors import InputError, is_of_input
from molattn.utils.console import counted, print_line
from molattn.utils.files import check_output_folder, lock_file
from molattn.version import version_changes

__all__ = ["UnfinishedRun", "UnfinishedTable", "resume_hint", "unfinished_table"]

_SUFFIX = ".unfinished"
_ROWS, _JOURNAL = "rows", "journal.jsonl"
_LONGEST_NAME = 200  # of the 255 bytes that most file systems allow
_CHUNK = 2**20

Entry = Mapping[str, Any]


class UnfinishedRun(NamedTuple):
    """What identifies a run that writes a table.

    Args:
        model: SHA-256 of the model.
        input: Likewise of the input.
        options: The options that decide the output.
        header: The columns of the output.
        versions: Versions of the packages that affect results.
    """

    model: str
    input: str
    options: Mapping[str, Any]
    header: Sequence[str]
    versions: Mapping[str, str]


class UnfinishedTable:
    """A table that is being written; rows are kept once they are committed.

    Attributes:
        rows: Number of rows of the input that are done.
        entries: The entries of the process that was interrupted.
        has_header: Whether the header was written.
    """

    def __init__(self, path: Path, folder: Path, journal: IO[bytes], run: UnfinishedRun) -> None:
        self._path, self._folder, self._journal = path, folder, journal
        self.rows, self.entries = 0, list[Entry]()
        self._crc, self._pending = 0, bytearray()
        size, end = 0, 0
        with _naming(path):
            lines = _whole_lines(folder / _JOURNAL)
            if lines and _run(lines[0][0]) is not None:
                self.entries, self._crc = _borne_out(folder / _ROWS, lines[1:])
                end = lines[len(self.entries)][1]
            if self.entries:
                self.rows, size = self.entries[-1]["rows"], self.entries[-1]["size"]
            else:
                end = 0
            self._file = open(folder / _ROWS, "ab")  # noqa: SIM115 (closed by `close`)
            try:
                self._file.truncate(size)
                journal.truncate(end)
                if not end:
                    self._write(journal, (json.dumps({"run": run._asdict()}) + "\n").encode())
            except BaseException:
                self.close()
                raise
        self._size = size
        self.has_header = size > 0

    def write(self, data: bytes) -> int:
        """Write bytes of rows, as a file does; they reach the disk with :meth:`commit`."""
        self._pending += data
        return len(data)

    def commit(self, rows: int, entry: Entry) -> None:
        """Keep what was written.

        Args:
            rows: Number of rows of the input that are done.
            entry: JSON types to read again when the run is resumed.

        Raises:
            OSError: Names the table, also if the disk is full.
        """
        content = bytes(self._pending)
        crc, size = zlib.crc32(content, self._crc), self._size + len(content)
        line = json.dumps({**entry, "rows": rows, "size": size, "crc": crc}, allow_nan=False)
        with _naming(self._path):
            self._write(self._file, content)
            self._write(self._journal, f"{line}\n".encode())
        self._pending.clear()
        self.rows, self._crc, self._size = rows, crc, size

    def finish(self) -> None:
        """Give the whole table its name.

        Raises:
            OSError: Names the table, also if the disk is full.
        """
        with _naming(self._path):
            self._file.close()
            move_rows(self._folder / _ROWS, self._path)

    def close(self) -> None:
        """Close the files; what cannot be written is lost."""
        for file in (self._file, self._journal):
            with suppress(OSError):
                file.close()

    def _write(self, file: IO[bytes], content: bytes) -> None:
        file.write(content)
        file.flush()


@contextmanager
def unfinished_table(
    path: Path, run: UnfinishedRun, *, resume: bool, console: Console
) -> Iterator[UnfinishedTable]:
    """Write a table that can be resumed if it is interrupted.

    When the block ends, the table has its name. After an exception its rows are kept, unless there
    are none, or the input is wrong: it cannot be resumed once it is corrected.

    Args:
        path: The table; an existing file is replaced.
        run: What the run is.
        resume: Whether to go on with the rows of an interrupted run; otherwise they are replaced.
        console: Where to report it.

    Raises:
        InputError: The table cannot be written, another process writes it, the interrupted run is
            another one, or there is none and the table is finished.
    """
    folder = _folder(path)
    check_output_folder(folder, "an interrupted run", {_ROWS, _JOURNAL}.__contains__)
    try:
        journal = _locked_journal(folder, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    if resume:
        try:
            _check_resumable(folder, path, run, console)
        except BaseException:
            if not (folder / _ROWS).exists():
                _remove(folder)
            journal.close()
            raise
    table = None
    try:
        if not resume:
            if hint := resume_hint(path):
                print_line(console, f"{hint.partition(';')[0]}: replaced, as --resume is not given")
            journal.truncate(0)
        table = UnfinishedTable(path, folder, journal, run)
        if table.rows:
            print_line(console, f"resuming after {counted(table.rows, 'row')}")
        elif resume:
            print_line(console, f"{path}: no rows of an interrupted run; starting with the first")
        yield table
        table.finish()
    except BaseException as error:
        if not resume_hint(path, error):
            _remove(folder)
        raise
    else:
        _remove(folder)
    finally:
        if table is not None:
            table.close()
        with suppress(OSError):
            journal.close()


def resume_hint(path: Path, error: BaseException | None = None) -> str:
    """Return how many rows of an interrupted table are kept and how to resume it, "" if none.

    After an ``error`` in the input it cannot be resumed.
    """
    if is_of_input(error):
        return ""
    folder = _folder(path)
    lines = _whole_lines(folder / _JOURNAL)[1:]
    rows = lines[-1][0].get("rows", 0) if lines else 0
    if not rows or not (folder / _ROWS).exists():  # which is moved when it is whole
        return ""
    return f"{counted(rows, 'row')} kept in {folder}; to resume: the same command with --resume"


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let errors of files name the table, not a part of the unfinished one."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def _folder(path: Path) -> Path:
    name = os.fsencode(path.name)[:_LONGEST_NAME].decode(errors="ignore")
    return path.with_name(f"{name}{_SUFFIX}")


def _locked_journal(folder: Path, path: Path) -> IO[bytes]:
    """Open the journal, which no other process has open then."""
    while True:
        folder.mkdir(exist_ok=True)
        try:
            journal = open(folder / _JOURNAL, "ab")  # noqa: SIM115 (closed with the table)
        except FileNotFoundError:  # another process has just finished
            if folder.parent.is_dir():
                continue
            raise
        if lock_file(journal.fileno()) is False:
            journal.close()
            raise InputError(f"{path}: another process is writing this file; wait for it to end")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(journal.fileno()), os.stat(folder / _JOURNAL)):
                return journal
        journal.close()


def _whole_lines(journal: Path) -> list[tuple[dict[str, Any], int]]:
    """Read the lines of a journal, each with the place where it ends, up to the first cut one."""
    found, end = [], 0
    with suppress(FileNotFoundError, NotADirectoryError), open(journal, "rb") as file:
        for line in file:
            end += len(line)
            try:
                content = json.loads(line)
            except ValueError:
                break
            if not (line.endswith(b"\n") and isinstance(content, dict)):
                break
            found.append((content, end))
    return found


def _run(line: Mapping[str, Any]) -> UnfinishedRun | None:
    try:
        return UnfinishedRun(**line["run"])
    except (KeyError, TypeError):
        return None


def _kept(folder: Path) -> UnfinishedRun | None:
    """Return which run left rows in a folder, if any did."""
    lines = _whole_lines(folder / _JOURNAL)
    return _run(lines[0][0]) if len(lines) > 1 else None


def _borne_out(rows: Path, lines: Sequence[tuple[dict[str, Any], int]]) -> tuple[list[Entry], int]:
    """Return the entries up to the first that the rows do not agree with, and the last CRC."""
    found: list[Entry] = []
    crc = size = 0
    with suppress(FileNotFoundError), open(rows, "rb") as file:
        for entry, _ in lines:
            sum_before = crc
            while (left := entry.get("size", -1) - size) > 0 and (
                part := file.read(min(left, _CHUNK))
            ):
                crc, size = zlib.crc32(part, crc), size + len(part)
            if (size, crc) != (entry.get("size"), entry.get("crc")):
                return found, sum_before
            found.append(entry)
    return found, crc


def _check_resumable(folder: Path, path: Path, run: UnfinishedRun, console: Console) -> None:
    if (kept := _kept(folder)) is not None:
        _check_same(kept, run, folder, console)
        _take_back(path, folder)
    if path.exists() and not resume_hint(path):
        raise InputError(
            f"--resume: {path} exists, and there is no interrupted run ({folder}) to go on "
            "with; leave out --resume to replace it"
        )


def _take_back(path: Path, folder: Path) -> None:
    """Copy the table to the rows if the run was killed between moving these and cleaning up."""
    rows, lines = folder / _ROWS, _whole_lines(folder / _JOURNAL)[1:]
    if path.is_file() and not rows.exists():
        entries, _ = _borne_out(path, lines)
        if entries and len(entries) == len(lines) and path.stat().st_size == entries[-1]["size"]:
            shutil.copyfile(path, rows)


def _check_same(was: UnfinishedRun, now: UnfinishedRun, folder: Path, console: Console) -> None:
    # An option that an earlier version did not have is another one: its effect then is not known.
    check_same_values({**dict.fromkeys(now.options), **was.options}, now.options, folder)
    check_same_digest("MODEL: the model has", now.model, was.model, folder)
    check_same_digest("INPUT: the table has", now.input, was.input, folder)
    if list(was.header) != list(now.header):
        raise InputError(
            f"--resume: the run in {folder} has other columns than this version writes; start a "
            "new run"
        )
    for line in version_changes(was.versions):
        print_line(console, line)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for name in (_ROWS, _JOURNAL):  # the journal last: it has the lock
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
