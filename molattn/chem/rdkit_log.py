"""Silence RDKit's log."""

import os
import threading

from rdkit import rdBase

__all__ = ["quiet"]


class _Quiet:
    """Context manager that silences RDKit's log while any thread is inside."""

    def __init__(self) -> None:
        self._reset()
        # A child process forked while another thread holds the lock would wait forever.
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._block: rdBase.BlockLogs | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._block = rdBase.BlockLogs()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._block = None


quiet = _Quiet()
