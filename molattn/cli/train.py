"""``molattn train``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from molattn.cli.shared import (
    DATA,
    FINE_TUNING,
    NETWORK,
    REPORT,
    RUN,
    TRAINING,
    make_console,
    resumable,
    section,
)
from molattn.cli.source import folder_name, is_finished, with_source
from molattn.config import (
    DataConfig,
    FineTuningConfig,
    NetworkConfig,
    ReportConfig,
    SupervisedConfig,
    TrainConfig,
)
from molattn.errors import InputError
from molattn.utils.console import print_line

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["EXAMPLES", "train"]

EXAMPLES = """Examples:
  molattn train
  molattn train assay.csv --target-columns pIC50 --split scaffold --epochs 100
  molattn train --config runs/assay/config.yaml --seed 1
  molattn train small.csv --target-columns logS --init-from runs/assay --freeze encoder
"""


def train(
    table: Annotated[Path | None, Parameter(name="DATA")] = None,
    /,
    *,
    output: Annotated[Path | None, Parameter(group=RUN)] = None,
    config_file: Annotated[Path | None, Parameter(name="--config", group=RUN)] = None,
    resume: Annotated[Path | None, Parameter(group=RUN)] = None,
    overwrite: Annotated[bool, Parameter(group=RUN, negative=(), show_default=False)] = False,
    dataset: Annotated[str | None, Parameter(group=DATA)] = None,
    dataset_folder: Annotated[Path | None, Parameter(group=DATA)] = None,
    data: Annotated[DataConfig, section(DATA)] = DataConfig(),
    network: Annotated[NetworkConfig, section(NETWORK)] = NetworkConfig(),
    training: Annotated[SupervisedConfig, section(TRAINING)] = SupervisedConfig(),
    fine_tuning: Annotated[FineTuningConfig, section(FINE_TUNING)] = FineTuningConfig(),
    report: Annotated[ReportConfig, section(REPORT)] = ReportConfig(),
) -> None:
    """Train a model on a table of molecules and their properties.

    Args:
        table: CSV, TSV, Parquet, SDF or SMILES file; by default 1,282 solubilities.
        output: Folder of the run, replaced if there; by default runs/NAME.
        config_file: YAML file of options; config.yaml of a run repeats it.
        resume: Go on with an interrupted run, with the same options and table.
        overwrite: Begin anew where an unfinished run has that name.
        dataset: Set of MoleculeNet to download, such as ESOL.
        dataset_folder: Where such sets are kept, by default a cache.
    """
    config = TrainConfig(str(table or ""), data, network, training, report, fine_tuning)
    config = with_source(config, dataset, dataset_folder)
    if resume is not None and (output is not None or overwrite):
        raise InputError("--resume: names the folder already, expected no --output or --overwrite")

    from molattn.training.run_folder import final_folder, free_folder, run_folder

    console = make_console()
    if is_finished(resume, console):
        return
    name = dataset.lower() if dataset else folder_name(config.file)
    output = final_folder(resume) if resume else output or free_folder(Path("runs") / name)
    with (
        resumable(output, "train"),
        run_folder(output, resume=resume is not None, overwrite=overwrite) as folder,
    ):
        if config.data.folds is not None and config.data.only_fold is None:
            _cross_validate(config, folder, console)
        else:
            _train_once(config, folder, console)
    print_line(console, f"written to {output}")


def _cross_validate(config: TrainConfig, folder: Path, console: "Console") -> None:
    from molattn.evaluation.cross_validation import cross_validate
    from molattn.evaluation.terminal_tables import summary_table

    summary = cross_validate(config, folder, console)
    console.print(summary_table(summary), markup=False)


def _train_once(config: TrainConfig, folder: Path, console: "Console") -> None:
    from molattn.evaluation.run_files import write_run
    from molattn.evaluation.scoring import score_run
    from molattn.evaluation.terminal_tables import score_table
    from molattn.training.run import train

    run = train(config, console, folder)
    scores = score_run(run, console)
    write_run(run, scores, folder)
    console.print(score_table(scores, run), markup=False)
    forest = scores.seconds.get("random_forest")
    epochs = ", ".join(f"{history.best} of {len(history.epochs)}" for history in run.histories)
    print_line(
        console,
        f"weights of epoch {epochs}, {run.seconds:.0f} s"
        f"{f' (the forest: {forest:.0f} s)' if forest else ''}",
    )
