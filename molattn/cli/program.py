"""The program: its commands, and its exit codes."""

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from molattn.cli import explain, fingerprint, predict, pretrain, train, tune
from molattn.cli.help_format import print_group
from molattn.cli.options_file import options_from_file
from molattn.errors import InputError, MolattnError
from molattn.version import __version__

__all__ = ["app", "main", "run"]

_TRACEBACK_VARIABLE = "MOLATTN_TRACEBACK"
_LONGEST_MESSAGE = 2000

app = App(
    name="molattn",
    help="Attention models of molecules: train one on a table, predict, explain and embed with it.",
    config=options_from_file,
    help_format="plaintext",
    help_formatter=print_group,
    version=__version__,
    suppress_keyboard_interrupt=False,
)

app.command(train.train, help_epilogue=train.EXAMPLES)
app.command(pretrain.pretrain, help_epilogue=pretrain.EXAMPLES)
app.command(predict.predict, help_epilogue=predict.EXAMPLE)
app.command(tune.tune, help_epilogue=tune.EXAMPLES)
app.command(explain.explain, help_epilogue=explain.EXAMPLE)
app.command(fingerprint.fingerprint, help_epilogue=fingerprint.EXAMPLE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        argv: The words after the program's name; by default those it was started with.
    """
    try:
        app(
            sys.argv[1:] if argv is None else list(argv),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except (InputError, CycloptsError) as error:
        return _fail(str(error), 2)
    except KeyboardInterrupt as interrupt:
        return _fail(str(interrupt) or "interrupted", 130)
    except MolattnError as error:
        return _fail(str(error), 1)
    except Exception as error:
        if os.environ.get(_TRACEBACK_VARIABLE):
            raise
        return _fail(
            f"{type(error).__name__}: {error} (set {_TRACEBACK_VARIABLE}=1 to see where)", 1
        )
    return 0


def run() -> None:
    """Run a command and exit: the entry point of ``molattn``."""
    sys.exit(main())


def _fail(message: str, code: int) -> int:
    line = "".join(
        char if char.isascii() and char.isprintable() else ascii(char)[1:-1]
        for char in " ".join(message.split())
    )
    if len(line) > _LONGEST_MESSAGE:
        line = f"{line[:_LONGEST_MESSAGE]}..."
    print(f"error: {line}", file=sys.stderr)
    return code
