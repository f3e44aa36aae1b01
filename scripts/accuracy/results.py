"""Results of runs in one tidy CSV file: a row for each score, all rows of a run at once or none."""

import csv
import fcntl
import io
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from molattn.errors import InputError, quoted
from molattn.utils.files import write_file


class Result(NamedTuple):
    """One score of one run.

    ``train_rows`` are the rows trained on; ``cpu_seconds`` and ``wall_seconds`` are those of the
    training process, its start included; ``options`` are those of the model, as JSON; ``digest`` is
    of the molecules, labels and parts that the run is of.
    """

    data: str
    split: str
    seed: int
    model: str
    kind: str
    part: str
    metric: str
    value: float
    train_rows: int
    cpu_seconds: float
    wall_seconds: float
    version: str
    options: str
    digest: str

    @property
    def case(self) -> "CaseKey":
        """The case that it is of."""
        return CaseKey(self.data, self.split, self.seed, self.part)

    @property
    def run(self) -> "RunKey":
        """The run that it is of."""
        return RunKey(self.data, self.split, self.seed, self.model, self.part)


class CaseKey(NamedTuple):
    """What tells one case from another; whether it is still the same one, its digest says."""

    data: str
    split: str
    seed: int
    part: str

    def __str__(self) -> str:
        return f"{self.data} {self.split} {self.seed}{_of(self.part)}"


class RunKey(NamedTuple):
    """What tells one run from another."""

    data: str
    split: str
    seed: int
    model: str
    part: str

    def __str__(self) -> str:
        return f"{self.data} {self.split} {self.seed} {self.model}{_of(self.part)}"


def _of(part: str) -> str:
    return "" if part == "test" else f" ({part})"


class Results:
    """The file of results, which several processes and threads may add to.

    Args:
        path: A CSV file; it need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def read(self) -> list[Result]:
        """Return all rows.

        Raises:
            InputError: The file is not one of results.
        """
        if not self.path.exists():
            return []
        try:
            with self.path.open(newline="", encoding="utf-8") as file:
                header, *lines = csv.reader(file)
        except (OSError, ValueError) as error:
            raise InputError(f"{self.path}: not a file of results: {error}") from error
        if tuple(header) != Result._fields:
            raise InputError(
                f"{self.path}: got the columns {quoted(','.join(header))}, "
                f"expected {','.join(Result._fields)}"
            )
        kinds = Result.__annotations__.values()
        try:
            return [
                Result(*(kind(cell) for kind, cell in zip(kinds, line, strict=True)))
                for line in lines
            ]
        except ValueError as error:
            raise InputError(f"{self.path}: a row cannot be read: {error}") from error

    def check(self, digests: Mapping[CaseKey, str]) -> None:
        """Check that the rows of cases are of the digests given, so that scores can be compared.

        Raises:
            InputError: A row is of another digest.
        """
        for result in self.read():
            now = digests.get(result.case, result.digest)
            if result.digest != now:
                raise InputError(
                    f"{self.path}: got {result.case} of the digest {now}, expected "
                    f"{result.digest} as its rows have: other molecules, labels or splits; "
                    "give what they were made of, or write into another file"
                )

    def add(self, rows: Sequence[Result]) -> None:
        """Add the rows of a run: a reader, or a crash, finds all of them or none.

        Raises:
            InputError: The file has rows of the same case, but of other data.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock, _locked(self.path.parent):
            self.check({row.case: row.digest for row in rows})
            text = io.StringIO()
            everything = [Result._fields, *self.read(), *rows]
            csv.writer(text, lineterminator="\n").writerows(everything)
            write_file(self.path, text.getvalue().encode())


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes out; the lock is on the folder, so that no file is left behind."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
