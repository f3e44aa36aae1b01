"""A training run in one call."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from molattn.config import TrainConfig
from molattn.errors import InputError
from molattn.evaluation.metrics import Scores
from molattn.evaluation.run_files import write_run
from molattn.evaluation.scoring import RunScores, score_run
from molattn.evaluation.terminal_tables import score_table
from molattn.model.model import MolAttn
from molattn.training.run import TrainingRun
from molattn.training.run import train as train_run
from molattn.training.run_folder import run_folder

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Trained", "train"]


@dataclass(frozen=True)
class Trained:
    """A trained model, and how good it is.

    Args:
        run: What was trained on what.
        judged: Its scores beside those of the baselines.
    """

    run: TrainingRun
    judged: RunScores

    @property
    def model(self) -> MolAttn:
        """The model."""
        return self.run.model

    @property
    def scores(self) -> dict[str, Scores]:
        """Scores of the test rows, by target and name of the score."""
        return self.judged.test.tasks

    def save(self, folder: str | Path) -> None:
        """Write the whole run into a folder, as ``molattn train`` does.

        A finished run of that name is replaced.

        Raises:
            InputError: If the folder holds something else or cannot be written, or an unfinished
                run has that name.
        """
        with run_folder(folder) as place:
            write_run(self.run, self.judged, place)

    def __str__(self) -> str:
        console = Console(width=100)
        with console.capture() as text:
            console.print(score_table(self.judged, self.run), markup=False)
        return text.get()


def train(
    table: "str | Path | pd.DataFrame",
    target_columns: str | list[str],
    *,
    verbose: bool = False,
    **options: Any,
) -> Trained:
    """Train a model on a table and score it, as ``molattn train`` does.

    Args:
        table: A DataFrame, or a file of any kind that the command reads.
        target_columns: The column to learn, or several.
        verbose: Whether to report on the terminal.
        options: Options of ``molattn train`` under their Python names (``smiles_column``,
            ``split``, ``epochs``, ``width``, ``baselines``, ...).

    Returns:
        The model, its scores on the rows set aside for the test, and ``save``.

    Raises:
        InputError: A table that cannot be used so, or an option that cannot be.
        MolattnError: If training diverges.
    """
    is_file = isinstance(table, str | Path)
    chosen = {"target_columns": target_columns, **options}
    config = TrainConfig.from_options(str(table) if is_file else "", chosen)
    if config.data.folds is not None and config.data.only_fold is None:
        raise InputError("folds: expected with fold alone; molattn train trains all of them")
    console = Console() if verbose else None
    run = train_run(config, console, frame=None if isinstance(table, str | Path) else table)
    return Trained(run, score_run(run, console))
