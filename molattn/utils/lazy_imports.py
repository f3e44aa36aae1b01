"""Modules that are loaded on first use instead of on import."""

import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import Any

__all__ = ["import_lazily"]

_KNOWN = {"__class__", "__file__", "__loader__", "__name__", "__package__", "__path__", "__spec__"}
"""Attributes that a module has before it is loaded."""


def import_lazily(names: Iterable[str]) -> None:
    """Load modules of these names only when something in them is used.

    An ``import`` of one gives a module that is empty until one of its attributes is read.

    Args:
        names: Modules that other packages import without need.
    """
    if names := {*names} - {*sys.modules}:
        sys.meta_path.insert(0, _LazyFinder(names))


class _LazyFinder(MetaPathFinder):
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._names:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _QuietLoader(spec.loader)  # pyright: ignore[reportArgumentType]
        return spec


class _QuietLoader(LazyLoader):
    """A lazy loader whose modules are not loaded by a look at where they come from.

    ``inspect`` does that to every module.
    """

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        lazy: Any = type(module)

        def read(self: ModuleType, name: str) -> Any:
            if name in _KNOWN:
                return object.__getattribute__(self, name)
            if type(self) is quiet:  # the lazy loader compares the class with its own
                self.__class__ = lazy
            return getattr(self, name)

        quiet = type(lazy.__name__, (lazy,), {"__getattribute__": read})
        module.__class__ = quiet
