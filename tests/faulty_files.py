"""A file layer that fails on demand."""

import builtins
import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CALLS = ("mkdir", "rename", "replace", "unlink", "rmdir", "listdir", "scandir", "fsync", "open")
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EDQUOT)


class FaultyFiles:
    """Counts the system calls on files below a folder, and lets one of them fail.

    Args:
        folder: The folder; calls on other files do not count.
        number: Which call fails, from 0.
        error: Its ``errno``.
        lasting: Whether all calls after it fail too, as on a full disk.
    """

    def __init__(self, folder: Path, number: int, error: int, *, lasting: bool = False) -> None:
        self.folder, self.number, self.error = str(folder), number, error
        self.lasting = lasting
        self.calls: list[str] = []

    @property
    def failed(self) -> str | None:
        """The call that failed, if there were so many."""
        return self.calls[self.number] if self.number < len(self.calls) else None

    def check(self, name: str, path: Any) -> None:
        if not os.fsdecode(path).startswith(self.folder):
            return
        self.calls.append(name)
        done = len(self.calls) - 1
        if done == self.number or (self.lasting and done > self.number):
            named = (path,) if name != "write" else ()
            raise OSError(self.error, os.strerror(self.error), *named)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let the call fail within the block."""
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, self._checked(name, getattr(os, name)))
            patch.setattr(builtins, "open", self._opened(io.open))
            patch.setattr(io, "open", builtins.open)
            yield

    def _checked(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def checked(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, int):
                if name == "fsync":
                    self.check(name, os.readlink(f"/proc/self/fd/{path}"))
            else:
                self.check(name, path)
            return call(path, *args, **kwargs)

        return checked

    def _opened(self, call: Callable[..., Any]) -> Callable[..., Any]:
        layer = self

        def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            is_written = not isinstance(file, int) and set(mode) & set("wxa+")
            if not (is_written and os.fsdecode(file).startswith(self.folder)):
                return call(file, mode, *args, **kwargs)
            self.check("open", file)

            class FaultyFile(io.FileIO):
                def write(self, content: Any) -> int:
                    layer.check("write", file)
                    return super().write(content)

            binary = io.BufferedWriter(FaultyFile(file, mode.replace("b", "").replace("t", "")))
            if "b" in mode:
                return binary
            names = ("buffering", "encoding", "errors", "newline")
            kwargs = {**dict(zip(names, args, strict=False)), **kwargs}
            kwargs.pop("buffering", None)
            return io.TextIOWrapper(binary, **kwargs)

        return opened
