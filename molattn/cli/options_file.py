"""Options from the file of ``--config``, or from the run of ``--resume``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cyclopts import App, ArgumentCollection, Token
from cyclopts.config import Dict

from molattn.cli.shared import make_console
from molattn.config import PretrainConfig, RunConfig, TrainConfig
from molattn.errors import InputError, did_you_mean
from molattn.utils.console import print_line


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
        given = {name: argument.tokens for argument in arguments for name in argument.names}
        config, resumed = given.get("--config"), given.get("--resume")
        if config and resumed:
            raise InputError("cannot be used with --config", option="resume")
        path = Path(config[0].value) if config else None
        if resumed and "--config" in given:
            path = _config_to_resume(Path(resumed[0].value), is_study="tune" in commands)
        if path is None:
            return
        from molattn.config.yaml_file import read_config_file

        run = PretrainConfig if "pretrain" in commands else TrainConfig
        content = read_config_file(path)
        files = content.pop(run.file_key(), None) or []
        (table,) = (one for one in arguments if one.field_info.name in ("table", "inputs"))
        if not (table.tokens or given.get("--dataset")):
            for index, file in enumerate([files] if isinstance(files, str) else files):
                table.append(Token(value=str(file), source=str(path), index=index))
        options: dict[str, Any] = {}
        for name, value in content.items():
            if isinstance(value, dict):
                _check_section(f"{path}, {name}", run, name, value)
            options |= value if isinstance(value, dict) else {name: value}
        Dict(options, source=str(path), use_commands_as_keys=False)(app, commands, arguments)
        self._path = path
        self._options = {
            argument.field_info.name
            for argument in arguments
            if any(token.source == str(path) for token in argument.tokens)
        }


def _check_section(place: str, run: type[RunConfig], name: str, options: Iterable[str]) -> None:
    if name not in run.sections():
        raise InputError(f"{place}: unknown section{did_you_mean(name, run.sections())}")
    for option in options:
        if (known := run.options().get(option)) and known.section != name:
            raise InputError(f"{place}: {option} is an option of the section {known.section}")


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
