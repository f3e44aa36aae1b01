"""The program: its commands, its help and its exit codes."""

import gc
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from cyclopts import App, CycloptsError

from molattn.cli import explain, fingerprint, predict, prepare, pretrain, serve, train, tune, verify
from molattn.cli.help_format import advanced_options, print_group
from molattn.cli.options_file import OptionsFile
from molattn.cli.processes import is_one_of_several, process_group
from molattn.cli.shared import STREAM
from molattn.cli.usage_errors import refuse_fractions, usage_message
from molattn.errors import InputError, MolattnError, is_out_of_memory, os_error_line
from molattn.utils.lazy_imports import import_lazily
from molattn.utils.memory import postpone_collection
from molattn.utils.registry import load_plugins
from molattn.utils.signals import Interrupted, signals_handled
from molattn.version import __version__

__all__ = ["app", "main", "make_app", "run"]

_TRACEBACK_VARIABLE = "MOLATTN_TRACEBACK"
_LONGEST_MESSAGE = 2000
_OUT_OF_MEMORY = (
    "out of memory; a smaller --batch-size needs less, and so does a smaller network (--width)"
)

_HELP_ALL = "--help-all"
_HELP = ("--help", "-h", _HELP_ALL)
# PyG imports these, which take longer than all of PyG that a command uses.
_UNUSED = ("torch._dynamo", "torch_geometric.datasets")
_COMMANDS: dict[Callable[..., Any], str] = {
    train.train: train.EXAMPLES,
    pretrain.pretrain: pretrain.EXAMPLES,
    predict.predict: predict.EXAMPLE,
    tune.tune: tune.EXAMPLES,
    prepare.prepare: prepare.EXAMPLES,
    explain.explain: explain.EXAMPLE,
    fingerprint.fingerprint: fingerprint.EXAMPLE,
    serve.serve: serve.EXAMPLES,
    verify.verify: verify.EXAMPLE,
}


def make_app(options_file: OptionsFile | None = None, *, all_options: bool = False) -> App:
    """Return the program; its ``--help`` shows the common options, or all."""
    app = App(
        name="molattn",
        help="Attention models for molecules: train, predict, explain, embed.",
        config=(options_file or OptionsFile(), refuse_fractions),
        help_flags=_HELP,
        help_format="plaintext",
        help_formatter=print_group,
        version=__version__,
        suppress_keyboard_interrupt=False,
    )
    for command, examples in _COMMANDS.items():
        hidden = frozenset() if all_options else advanced_options(command)
        more = f"\nmolattn {command.__name__} {_HELP_ALL} shows all options." if hidden else ""
        app.command(
            command,
            help_formatter=partial(print_group, hidden=hidden),
            help_epilogue=examples + more,
        )
    return app


app = make_app(all_options=True)
"""The program with all options in its help, as the documentation lists them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    with signals_handled():
        return _run(words)


def run(argv: Sequence[str] | None = None) -> None:
    """Run a command and exit: the entry point of ``molattn``."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names in no letters of the terminal
    # PyG compiles functions with TorchScript when it is imported.
    warnings.filterwarnings("ignore", ".torch.jit.script. is deprecated")
    postpone_collection()
    import_lazily(_UNUSED)
    code = main(argv)
    gc.freeze()  # the last collection, when the process ends, would search all modules
    sys.exit(code)


def _run(words: list[str]) -> int:
    options_file = OptionsFile()
    try:
        if any("\0" in word for word in words):
            raise InputError("an argument contains the character NUL")
        several = is_one_of_several(words)
        if words and not {*_HELP, "--version"} & {*words}:
            load_plugins()
        with process_group() if several else nullcontext(True) as is_first:
            if is_first:
                make_app(options_file, all_options=_HELP_ALL in words)(
                    [STREAM if word == "-" else word for word in words],
                    exit_on_error=False,
                    print_error=False,
                    result_action="return_value",
                )
    except InputError as error:
        return _fail(options_file.located(str(error)), 2)
    except CycloptsError as error:
        return _fail(usage_message(error, (command.__name__ for command in _COMMANDS)), 2)
    except Interrupted as interrupt:
        return _fail(str(interrupt), 128 + interrupt.signum)
    except KeyboardInterrupt as interrupt:  # not in the main thread
        return _fail(str(interrupt) or "interrupted", 130)
    except MolattnError as error:
        return _fail(str(error), 1)
    except Exception as error:
        if os.environ.get(_TRACEBACK_VARIABLE):
            raise
        if isinstance(error, OSError) and error.errno is not None:
            return _fail(os_error_line(error), 1)
        if is_out_of_memory(error):
            return _fail(_OUT_OF_MEMORY, 1)
        return _fail(
            f"{type(error).__name__}: {error} (set {_TRACEBACK_VARIABLE}=1 to see where)", 1
        )
    return 0


def _fail(message: str, code: int) -> int:
    line = "".join(
        char if char.isprintable() else ascii(char)[1:-1] for char in " ".join(message.split())
    )
    if len(line) > _LONGEST_MESSAGE:
        line = f"{line[:_LONGEST_MESSAGE]}..."
    print(f"error: {line}", file=sys.stderr)
    return code
