"""The program: its commands, its help and its exit codes."""

import io
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, get_type_hints

from cyclopts import App, CycloptsError
from pydantic import ValidationError

from molattn.cli import models, runs, train
from molattn.cli.options import OptionsFile
from molattn.cli.processes import launch, process_group, world_size
from molattn.config.base import input_error
from molattn.errors import InputError, MolattnError, os_error_line
from molattn.utils.registry import load_plugins
from molattn.utils.signals import Interrupted, signals_handled
from molattn.version import __version__

# The word STREAM, and the range of a goal that begins with a negative number: no options.
_NO_OPTION = re.compile(r"-$|-[\d.]\S* to ")
_TRACEBACK_VARIABLE = "MOLATTN_TRACEBACK"
_LONGEST_MESSAGE = 2000
_HELP_ALL = "--help-all"
_HELP = ("--help", "-h", _HELP_ALL)
_LONG = (
    *("Data", "Network", "Fine-tuning", "Gaussian process", "Training", "Report"),
    *("Prediction", "Embedding", "Explanation", "Plan"),
)
"""Groups of which ``--help`` shows the common options; ``--help-all`` shows the others too."""
_COMMANDS: tuple[Callable[..., Any], ...] = (
    *(runs.check, train.train, models.predict, models.explain, runs.compare, runs.runs),
    *(
        models.plan,
        models.update,
        models.serve,
        models.export,
        train.tune,
        models.fingerprint,
        models.prepare,
    ),
    *(train.pretrain, models.verify),
)
"""In the order of use."""
_FIRST_EXAMPLES = """Examples:
  molattn predict admet "CCO" "c1ccccc1O"
  molattn train assay.csv --target-columns pIC50 --output runs/assay

molattn COMMAND --help shows the options of a command."""
_EXAMPLES = """
  molattn check assay.csv --output problems.csv
  molattn train
  molattn train assay.csv --target-columns pIC50 --split scaffold --epochs 100
  molattn train --config runs/assay/config.yaml --seed 1
  molattn train small.csv --target-columns logS --init-from runs/assay
  molattn pretrain molecules.smi.gz --output runs/pretrained
  molattn pretrain a.csv b.parquet --exclude assay.csv --max-hours 8
  molattn pretrain --resume runs/pretrained
  molattn pretrain mine.smi.gz --init-from base --output runs/mine --epochs 2
  molattn tune assay.csv --target-columns pIC50 --output runs/search
  molattn tune assay.csv --target-columns pIC50 --space space.yaml
  molattn tune --resume runs/search --trials 200
  molattn predict runs/solubility molecules.csv --output predictions.csv
  molattn predict runs/solubility "CCO" "c1ccccc1O"
  molattn predict runs/solubility - < molecules.csv | head
  molattn prepare library.smi.gz more.csv --output stores/library --num-workers 8
  molattn prepare assay.csv --target-columns pIC50 --output stores/assay
  molattn explain runs/solubility molecules.csv --output explained --check
  molattn explain runs/solubility "CCO" "c1ccccc1O" --output explained
  molattn fingerprint runs/solubility molecules.csv --output embeddings.parquet
  molattn fingerprint base "CCO" "c1ccccc1O" --output embeddings.csv
  molattn plan runs/assay library.smi.gz --count 96 --output next.xlsx
  molattn plan admet library.csv --target solubility_aqsoldb --goal "above -3" --output next.csv
  molattn plan runs/assay library.csv --acquisition uncertainty --cost-column price --output a.csv
  molattn update runs/assay measured.csv --output runs/assay-2
  molattn serve
  molattn serve runs/solubility runs/toxicity --reference drugs.csv --port 8080
  molattn export runs/solubility --to onnx --output network.onnx
  molattn export runs/solubility --to onnx --with-gaussian-process --output solubility.onnx
  molattn verify runs/solubility
  molattn runs
  molattn runs runs/2026 --output runs.csv
  molattn compare runs/network runs/both
  molattn compare runs/folds_* --output runs/comparison
"""


def make_app(options_file: OptionsFile | None = None, *, all_options: bool = False) -> App:
    """Return the program; its ``--help`` shows the common options, or all."""
    app = App(
        name="molattn",
        help="Attention models for molecules: train, predict, explain, embed.",
        help_epilogue=_FIRST_EXAMPLES,
        config=(options_file or OptionsFile(),),
        help_flags=_HELP,
        help_format="plaintext",
        help_formatter=_print_group,
        version=__version__,
        suppress_keyboard_interrupt=False,
    )
    for position, command in enumerate(_COMMANDS):
        examples = [
            line for line in _EXAMPLES.splitlines() if f"  molattn {command.__name__}" in line
        ]
        is_short = not all_options and command not in (runs.compare, runs.runs)
        more = ["", f"molattn {command.__name__} {_HELP_ALL} shows all options."] * is_short
        epilogue = "\n".join(["Examples:", *examples, *more])
        formatter = partial(_print_group, command=command, all_options=all_options)
        app.command(command, help_epilogue=epilogue, help_formatter=formatter, sort_key=position)
    return app


def _common_options(section: Any) -> Iterator[str]:
    """Yield the options of a command or of a section that ``--help`` shows."""
    for option in fields(section) if is_dataclass(section) else ():
        if option.metadata.get("common"):
            yield f"--{option.name.replace('_', '-')}"
    for kind in get_type_hints(section).values():
        if is_dataclass(kind):
            yield from _common_options(kind)


def _print_group(
    console: Any,
    options: Any,
    panel: Any,
    *,
    command: Callable[..., Any] | None = None,
    all_options: bool = False,
) -> None:
    """Print a group of the help under a line, without the line breaks of docstrings."""
    from cyclopts.help import DefaultFormatter, PanelSpec
    from rich.box import Box

    entries = []
    common = {*_common_options(command)} if command is not None else set[str]()
    for option in panel.entries:
        is_rare = panel.title in _LONG or "--import" in option.names
        if all_options or not is_rare or common & {*option.names}:
            help = getattr(option.description, "primary_renderable", option.description)
            text = " ".join(str(help or "").split())
            entries.append(option.copy(description=text, default=option.default or None))
    if not entries:
        return
    box = Box("\n".join(["─── ", *["    "] * 7]))
    DefaultFormatter(panel_spec=PanelSpec(box=box))(console, options, panel.copy(entries=entries))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, in several processes if it returns how it trains; return its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    is_distributed = words[:1] in (["train"], ["pretrain"]) and world_size() > 1
    options_file = OptionsFile()
    with _no_folder_of_the_compiler(), signals_handled():
        try:
            if words and not {*_HELP, "--version"} & {*words}:
                load_plugins()
            with process_group() if is_distributed else nullcontext():
                to_launch = make_app(options_file, all_options=_HELP_ALL in words)(
                    [f" {word}" if _NO_OPTION.match(word) else word for word in words],
                    exit_on_error=False,
                    print_error=False,
                    result_action="return_value",
                )
            return 0 if to_launch is None else launch(to_launch, words)
        except BrokenPipeError:  # the reader of standard output has closed it
            return 141  # 128 + SIGPIPE
        except SystemExit as end:  # of a process that trains beside the first one
            return int(end.code or 0)
        except Exception as error:
            is_known = isinstance(error, MolattnError | CycloptsError)
            if os.environ.get(_TRACEBACK_VARIABLE) and not is_known:
                raise
            message, code = _message(error, options_file)
            return _fail(error, message, code)
        except KeyboardInterrupt as interrupt:
            signum = interrupt.signum if isinstance(interrupt, Interrupted) else 2
            return _fail(interrupt, str(interrupt) or "interrupted", 128 + signum)


@contextmanager
def _no_folder_of_the_compiler() -> Iterator[None]:
    """Remove torch's folder, made when PyG is imported and empty unless code is compiled."""
    try:
        yield
    finally:
        with suppress(KeyError, OSError):
            os.rmdir(os.environ["TORCHINDUCTOR_CACHE_DIR"])


def run(argv: Sequence[str] | None = None) -> None:
    """Run a command and exit: the entry point of ``molattn``."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names in no letters of the terminal
    # PyG compiles functions with TorchScript when it is imported.
    warnings.filterwarnings("ignore", ".torch.jit.script. is deprecated")
    code = main(argv)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:  # which is reported already; Python would report it again
        os._exit(code)
    sys.exit(code)


def _message(error: Exception, options_file: OptionsFile) -> tuple[str, int]:
    """Return the message of an error, and the exit code."""
    if isinstance(error, CycloptsError) and isinstance(error.__cause__, ValidationError):
        argument: Any = error.argument
        error = input_error(argument.hint, error.__cause__)
    if isinstance(error, InputError):
        return options_file.located(error), 2
    if isinstance(error, CycloptsError):
        error.verbose = False
        return str(error), 2
    if isinstance(error, MolattnError):
        return str(error), 1
    if isinstance(error, OSError) and error.errno is not None:
        return os_error_line(error), 1
    if isinstance(error, MemoryError) or "memory" in str(error):  # of Python, or of torch
        return "out of memory; a smaller --batch-size or network (--width) needs less", 1
    return f"{type(error).__name__}: {error} (set {_TRACEBACK_VARIABLE}=1 to see where)", 1


def _fail(error: BaseException, message: str, code: int) -> int:
    """Print an error with its notes, such as how to resume, as a line; return the exit code."""
    notes = [note for note in getattr(error, "__notes__", ()) if "\n" not in note]
    words = " ".join("; ".join([message, *notes]).split())
    line = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in words)
    if len(line) > _LONGEST_MESSAGE:
        line = f"{line[:_LONGEST_MESSAGE]}..."
    print(f"error: {line}", file=sys.stderr)
    return code
