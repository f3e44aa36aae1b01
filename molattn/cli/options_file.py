"""Options from the file of ``--config``, or from the run of ``--resume``."""

from pathlib import Path

from cyclopts import App, ArgumentCollection, Token
from cyclopts.config import Dict

from molattn.config.validation import as_in_file
from molattn.errors import InputError

__all__ = ["OptionsFile"]

_TABLES = ("table", "inputs")
"""Parameters of commands that are the tables to read."""


class OptionsFile:
    """Adds the options of a file where the command line has none; a ``config`` of cyclopts."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._options: set[str] = set()

    def located(self, message: str) -> str:
        """Return an error message that names the file if it begins with an option of the file."""
        if message.partition(":")[0].partition(" ")[0] not in self._options:
            return message
        return f"{self._path}, {as_in_file(message, self._options)}"

    def __call__(self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Add the options."""
        given = {name: argument for argument in arguments for name in argument.names}
        tokens = [given[name].tokens for name in ("--config", "--resume") if name in given]
        if "--config" not in given or not any(tokens):
            return
        if all(tokens):
            raise InputError(
                "--resume cannot be used with --config: a resumed run keeps its options"
            )

        from molattn.config import PretrainConfig, TrainConfig
        from molattn.config.yaml_file import read_config_file

        run = PretrainConfig if commands == ("pretrain",) else TrainConfig
        path = Path((tokens[0] or tokens[1])[0].value)
        if not tokens[0]:
            from molattn.training.run_folder import CONFIG_FILE, unfinished_run

            folder = path if "tune" in commands else unfinished_run(path)
            if folder is None:
                return
            if "tune" in commands and not (folder / CONFIG_FILE).exists():
                raise InputError(f"--resume {path}: no study, expected the folder of one")
            path = folder / CONFIG_FILE
        content = read_config_file(path, run)
        (key,) = run.file_keys()
        files = content.pop(key, None) or []
        (table,) = (argument for argument in arguments if argument.field_info.name in _TABLES)
        is_named = "--dataset" in given and given["--dataset"].tokens
        if not (table.tokens or is_named):
            for index, file in enumerate([files] if isinstance(files, str) else files):
                table.append(Token(value=str(file), source=str(path), index=index))
        options = {name: value for section in content.values() for name, value in section.items()}
        Dict(options, source=str(path), use_commands_as_keys=False)(app, commands, arguments)
        self._path = path
        self._options = {
            argument.name
            for argument in arguments
            if any(token.source == str(path) for token in argument.tokens)
        }
