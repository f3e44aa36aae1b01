"""``molattn.train``: train and score a model in one call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from molattn.config import TrainConfig
from molattn.errors import InputError
from molattn.evaluation.report.run_files import write_run
from molattn.evaluation.report.tables import print_scores, run_tables
from molattn.evaluation.scores.metrics import Scores
from molattn.evaluation.scores.scoring import RunScores, score_run
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.training.loop import Hooks
from molattn.training.resolve import NO_MODEL
from molattn.training.run import TrainingRun
from molattn.training.run import train as train_run
from molattn.training.run_folder import run_folder
from molattn.utils.devices import exclusive

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class TrainingResult:
    """The model and the scores of :func:`molattn.train`.

    Args:
        run: The model and its training data.
        run_scores: Scores and test predictions of the model, and scores of the baselines.
    """

    run: TrainingRun
    run_scores: RunScores

    @property
    def model(self) -> MolAttn:
        """The trained model."""
        return self.run.model

    @property
    def scores(self) -> dict[str, Scores]:
        """Scores on the test rows, by target and metric; empty if there are none."""
        test = self.run_scores.metrics.scores.get("test")
        return test.tasks if test else {}

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the run to a folder, as ``molattn train`` does; ``overwrite`` replaces a run.

        Raises:
            InputError: If the folder is not a run or cannot be written, or there is a run of that
                name and ``overwrite`` is false.
        """
        with run_folder(folder, overwrite=overwrite) as unfinished:
            write_run(self.run, self.run_scores, unfinished)

    def __repr__(self) -> str:
        more = "print(run): all scores; run.model.predict(smiles); run.save(folder)"
        rows = f"trained with {len(self.run.table.smiles):,} rows; {more}"
        scores = str(self).partition("prediction intervals")[0].splitlines()[:4]
        return "\n".join([*map(str.rstrip, scores), rows])

    def _repr_html_(self) -> str:
        """Return the scores as tables, for notebooks."""
        tables = run_tables(self.run_scores.metrics, self.run.config)
        paragraphs = (
            f"<p>{escape(table.title)}</p>{table.frame.to_html(index=False)}" for table in tables
        )
        return "".join(paragraphs)

    def __str__(self) -> str:
        console = Console(width=100)
        with console.capture() as text:
            print_scores(self.run_scores.metrics, self.run.config, console)
            table = self.run.table
            for what, rows in (
                ("skipped rows", table.skipped),
                ("missing labels", table.all_unreadable),
            ):
                if rows:
                    first = f"{table.unit} {rows[0].line}: {rows[0].reason}"
                    console.print(f"{what}: {len(rows):,}; the first: {first}", markup=False)
        return text.get()


@exclusive()
def train(
    table: "str | Path | pd.DataFrame",
    target_columns: str | list[str],
    *,
    verbose: bool = False,
    make_model: Callable[[MolAttnConfig], MolAttn] = MolAttn,
    callbacks: Sequence[Any] = (),
    logger: Any = None,
    **options: Any,
) -> TrainingResult:
    """Train a model on a table and score it on the test rows, as ``molattn train`` does.

    Args:
        table: A DataFrame, or a file in any format that the command reads.
        target_columns: One or more columns to predict.
        verbose: Whether to print a log.
        make_model: Function that returns a new model for a config, called for each member of an
            ensemble. Use ``lambda config: MolAttn(config, encoder=..., readout=...,
            head=...)`` to train a network with your own parts, see :class:`molattn.MolAttn`. With
            it, the default of ``init_from`` is ``none``.
        callbacks: Callbacks of Lightning, for the training of the network; each member of an
            ensemble has copies of its own. They may monitor ``train_loss`` and
            ``validation_loss``.
        logger: Logger of Lightning, or a list of them.
        options: Options of ``molattn train`` by their Python names (``smiles_column``, ``split``,
            ``epochs``, ``width``, ``baselines``, ...).

    Returns:
        The model with its scores on the test rows.

    Raises:
        InputError: If the table or an option is invalid.
        MolattnError: If training diverges.
    """
    frame = None if isinstance(table, str | Path) else table
    options["target_columns"] = target_columns
    if make_model is not MolAttn:
        options.setdefault("init_from", NO_MODEL)
    config = TrainConfig.from_options(str(table) if frame is None else "", options)
    if config.data.folds is not None and config.data.only_fold is None:
        reason = "needs --only-fold; the command molattn train does a cross-validation"
        raise InputError(reason, option="folds")
    console = Console() if verbose else None
    hooks = Hooks(callbacks=callbacks, logger=logger)
    run = train_run(config, console, frame=frame, make_model=make_model, hooks=hooks)
    return TrainingResult(run, score_run(run, console))
