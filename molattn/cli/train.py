"""``molattn train``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from molattn.cli.processes import is_other_node, run_on_devices
from molattn.cli.shared import RunOptions, make_console, report_same_name, section
from molattn.cli.train_options import TrainOptions
from molattn.config import TrainConfig
from molattn.utils.console import print_line

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["EXAMPLES", "train"]

EXAMPLES = """Examples:
  molattn train
  molattn train assay.csv --target-columns pIC50 --split scaffold --epochs 100
  molattn train --config runs/assay/config.yaml --seed 1
  molattn train small.csv --target-columns logS --init-from runs/assay
"""


def train(
    table: Annotated[Path | None, Parameter(name="DATA")] = None,
    /,
    *,
    run: Annotated[RunOptions, section("Run")] = RunOptions(),
    options: Annotated[TrainOptions, Parameter(name="*")] = TrainOptions(),
) -> None:
    """Train a model on a table of molecules and their properties.

    Args:
        table: A table or a prepared store; by default the bundled data.
    """
    console = make_console()
    if run.is_finished(console):
        return
    config = options.train_config(table)
    report_same_name(console, config.fine_tuning.init_from, option="--init-from")

    if is_other_node(config.training):  # which takes part in the run of the first one
        run_on_devices(config.training, _train, config, Path())
        return
    with run.open_folder("train", options.run_name(config.file)) as (output, folder):
        run_on_devices(config.training, _train, config, folder)
    print_line(console, f"Results written to {output}")


def _train(config: TrainConfig, folder: Path) -> None:
    if config.data.folds is not None and config.data.only_fold is None:
        _cross_validate(config, folder, make_console())
    else:
        _train_once(config, folder, make_console())


def _cross_validate(config: TrainConfig, folder: Path, console: "Console") -> None:
    from molattn.data.leakage import leakage_warnings
    from molattn.evaluation.cross_validation import cross_validate
    from molattn.evaluation.interval_promise import is_exchangeable, test_rows
    from molattn.evaluation.terminal_tables import summary_table

    summary = cross_validate(config, folder, console)
    units = dict(zip(config.data.target_columns, config.data.target_units, strict=False))
    console.print(summary_table(summary, config.report.interval, units), markup=False)
    for warning in leakage_warnings([fold["leakage"] for fold in summary["folds"]]):
        print_line(console, warning)
    has_intervals = any("coverage" in one for one in summary.get("uncertainty", {}).values())
    if has_intervals and not is_exchangeable(config.data):
        print_line(console, f"coverage is not promised: the test rows {test_rows(config.data)}")
    if "final" in summary:
        print_line(
            console,
            "These are scores of the models of the folds; the final model, of all rows, has no "
            "score of its own",
        )


def _train_once(config: TrainConfig, folder: Path, console: "Console") -> None:
    from molattn.evaluation.run_files import write_run
    from molattn.evaluation.scoring import score_run
    from molattn.evaluation.terminal_tables import score_table
    from molattn.training.run import train
    from molattn.utils.progress import step_progress

    run = train(config, console, folder)
    with step_progress(console, "scoring"):
        scores = score_run(run, console)
    with step_progress(console, "writing the results"):
        write_run(run, scores, folder)
    console.print(score_table(scores, run), markup=False)
    forest = scores.seconds.get("random_forest")
    epochs = ", ".join(f"{history.best} of {len(history.epochs)}" for history in run.histories)
    print_line(
        console,
        f"Trained in {run.seconds:.0f} s{f' (random forest: {forest:.0f} s)' if forest else ''}"
        + (f"; weights of epoch {epochs} saved" if epochs else ""),
    )
