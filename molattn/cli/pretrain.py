"""``molattn pretrain``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from molattn.cli.processes import needs_processes
from molattn.cli.shared import RunOptions, group, make_console, report_same_name, section
from molattn.config import (
    MoleculesConfig,
    PretrainConfig,
    PretrainLoopConfig,
    PretrainNetworkConfig,
)
from molattn.errors import InputError
from molattn.utils.console import print_line

EXAMPLES = """Examples:
  molattn pretrain molecules.smi.gz --output runs/pretrained
  molattn pretrain a.csv b.parquet --exclude assay.csv --max-hours 8
  molattn pretrain --resume runs/pretrained
  molattn pretrain mine.smi.gz --init-from base --output runs/mine --epochs 2
  molattn train assay.csv --target-columns pIC50 --init-from runs/pretrained
"""


def pretrain(
    *inputs: Annotated[Path, Parameter(name="INPUT")],
    run: Annotated[RunOptions, section("Run")] = RunOptions(),
    num_workers: Annotated[int, group("Run"), Parameter(validator=Number(gte=0))] = 0,
    molecules: Annotated[MoleculesConfig, section("Data")] = MoleculesConfig(),
    network: Annotated[PretrainNetworkConfig, section("Network")] = PretrainNetworkConfig(),
    training: Annotated[PretrainLoopConfig, section("Training")] = PretrainLoopConfig(),
) -> PretrainLoopConfig | None:
    """Pretrain a network on molecules without labels, for molattn train --init-from.

    It learns to predict descriptors, fingerprints, and masked atoms and bonds.
    See "Pretraining" in the documentation.

    Args:
        inputs: One or more tables of molecules (CSV, TSV, Parquet, Excel, SDF or SMILES files, or
            stores of molattn prepare).
        num_workers: Worker processes that prepare the molecules; 0 prepares them in the main
            process.
    """
    molecules = replace(  # absolute paths, so that the run can be resumed from anywhere
        molecules,
        exclude=tuple(map(_absolute, molecules.exclude)),
        molecules_folder=molecules.molecules_folder and _absolute(molecules.molecules_folder),
    )
    config = PretrainConfig(tuple(map(str, inputs)), molecules, network, training)
    console = make_console()
    if run.report_finished(console):
        return None
    report_same_name(console, config.training.init_from)
    if not config.files:
        raise InputError("INPUT is missing: expected one or more tables of molecules")

    if needs_processes(training):
        return training
    with run.open_folder("pretrain", "pretrained") as (output, folder):
        from molattn.pretraining import describe_scores, write_pretraining
        from molattn.pretraining import pretrain as run_pretraining
        from molattn.utils.process_group import process_rank

        done = run_pretraining(config, folder, console, num_workers=num_workers)
        if not process_rank():
            write_pretraining(done, folder)
    print_line(console, f"Validation: {', '.join(describe_scores(done.metrics['validation']))}")
    seconds = 3600.0 * done.metrics["hours"]
    print_line(console, f"Trained in {seconds:.0f} s ({done.history.steps} steps)")
    print_line(console, f"Results written to {output}")
    return None


def _absolute(path: str) -> str:
    return str(Path(path).absolute())
