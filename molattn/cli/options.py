"""Options: their groups in ``--help``, and those of a file (``--config``, ``--resume``)."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, ArgumentCollection, Group, Parameter, Token
from cyclopts.config import Dict

from molattn.config import PretrainConfig, TrainConfig
from molattn.errors import InputError
from molattn.utils.console import print_line

if TYPE_CHECKING:
    from rich.console import Console

STREAM = " -"
"""The word - of a command line, which cyclopts would take for an option."""

_TITLES = (
    *("Run", "Search", "Data", "Network", "Fine-tuning", "Gaussian process", "Training", "Report"),
    *("Output", "Prediction", "Embedding", "Explanation", "Plan", "Export", "Server"),
)
_GROUPS = {title: Group(title, sort_key=index) for index, title in enumerate(_TITLES)}


def group(title: str) -> Parameter:
    """Show an option in a group of ``--help``."""
    return Parameter(group=_GROUPS[title])


Imports = Annotated[
    tuple[Path, ...],
    Parameter(
        name="--import",
        group=_GROUPS["Run"],
        negative=(),
        consume_multiple=False,
        show_default=False,
        help="Python file that registers your own layers, readouts or featurizers; a saved model "
        "has its name alone, so give it to each command.",
    ),
]


def section(title: str) -> Parameter:
    """Show each field of a dataclass as an option, in a group of ``--help``."""
    return Parameter(
        name="*",
        group=_GROUPS[title],
        negative_iterable=(),
        consume_multiple=1,
        show_default=_shown_default,
    )


def _shown_default(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def make_console(*, stderr: bool = False) -> "Console":
    """Return a console on standard output, or on standard error."""
    from rich.console import Console

    console = Console(stderr=stderr)
    if not console.is_terminal:
        console.width = 160  # tables in a file are not cut
    return console


class OptionsFile:
    """Adds the options of a file where the command line has none; a ``config`` of cyclopts."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._options: set[str] = set()

    def located(self, error: InputError) -> str:
        """Return the message of an error, with the file if that sets the option."""
        is_of_file = error.option in self._options
        return f"{self._path}, {error}" if is_of_file else error.command_line()

    def __call__(self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Add the options."""
        tokens = {name: argument.tokens for argument in arguments for name in argument.names}
        config = tokens.get("--config")
        resumed = tokens.get("--resume")
        if config and resumed:
            raise InputError("cannot be used with --config", option="resume")
        path = Path(config[0].value) if config else None
        if resumed and "--config" in tokens:
            path = _config_to_resume(Path(resumed[0].value), is_study="tune" in commands)
        if path is None:
            return
        from molattn.config.yaml_file import read_config_file

        run = PretrainConfig if "pretrain" in commands else TrainConfig
        content = read_config_file(path)
        files = content.pop(run.file_key(), None) or []
        (table,) = (
            argument for argument in arguments if argument.field_info.name in ("table", "inputs")
        )
        if not (table.tokens or tokens.get("--dataset")):
            for index, file in enumerate([files] if isinstance(files, str) else files):
                table.append(Token(value=str(file), source=str(path), index=index))
        options: dict[str, Any] = {}
        for section, values in content.items():
            if section not in run.sections() or not isinstance(values, dict):
                names = ", ".join(run.sections())
                raise InputError(f"{path}, {section}: expected a section of options, of {names}")
            for name in values:
                if (option := run.options().get(name)) and option.section != section:
                    true_section = option.section
                    raise InputError(f"{path}, {section}: {name} is an option of {true_section}")
            options |= values
        Dict(options, source=str(path), use_commands_as_keys=False)(app, commands, arguments)
        self._path = path
        self._options = {
            argument.field_info.name
            for argument in arguments
            if any(token.source == str(path) for token in argument.tokens)
        }


def _config_to_resume(folder: Path, *, is_study: bool) -> Path:
    """Return the options of an interrupted run or study; a finished run ends the command."""
    from molattn.training.run_folder import CONFIG_FILE, unfinished_run

    if is_study and not (folder / CONFIG_FILE).exists():
        raise InputError(f"{folder} is no folder of a study", option="resume")
    unfinished = folder if is_study else unfinished_run(folder)
    if unfinished is None:
        print_line(
            make_console(),
            f"{folder} is finished; there is nothing to resume. To train it further, start a run "
            "from it with --init-from",
        )
        raise SystemExit(0)
    return unfinished / CONFIG_FILE
