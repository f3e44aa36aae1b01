"""``molattn pretrain``."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from molattn.cli.shared import (
    DATA,
    NETWORK,
    RUN,
    TRAINING,
    make_console,
    resumable,
    section,
)
from molattn.cli.source import is_finished
from molattn.config import (
    MoleculesConfig,
    PretrainConfig,
    PretrainLoopConfig,
    PretrainNetworkConfig,
)
from molattn.errors import InputError
from molattn.utils.console import print_line

__all__ = ["EXAMPLES", "pretrain"]

EXAMPLES = """Examples:
  molattn pretrain molecules.smi.gz --output runs/pretrained
  molattn pretrain a.csv b.parquet --exclude assay.csv --output runs/pretrained --max-hours 8
  molattn pretrain --resume runs/pretrained
  molattn pretrain mine.smi.gz --init-from base --output runs/mine --epochs 2
  molattn train assay.csv --target-columns pIC50 --init-from runs/pretrained
"""


def pretrain(
    *inputs: Annotated[Path, Parameter(name="INPUT")],
    output: Annotated[Path | None, Parameter(group=RUN)] = None,
    config_file: Annotated[Path | None, Parameter(name="--config", group=RUN)] = None,
    resume: Annotated[Path | None, Parameter(group=RUN)] = None,
    overwrite: Annotated[bool, Parameter(group=RUN, negative=(), show_default=False)] = False,
    num_workers: Annotated[int, Parameter(group=RUN)] = 0,
    molecules: Annotated[MoleculesConfig, section(DATA)] = MoleculesConfig(),
    network: Annotated[PretrainNetworkConfig, section(NETWORK)] = PretrainNetworkConfig(),
    training: Annotated[PretrainLoopConfig, section(TRAINING)] = PretrainLoopConfig(),
) -> None:
    """Pretrain a network on molecules without labels, for molattn train --init-from.

    It learns RDKit's descriptors, counts of hashed substructures and atom pairs, and atoms and
    bonds that are hidden from it (docs/pretrain.md says how).

    Args:
        inputs: CSV, TSV, Parquet, SDF or SMILES files.
        output: Folder for the run (needed without --resume): the model and its card, its scores.
            A former run in it is replaced.
        config_file: YAML file of options; config.yaml of a run repeats it. The command line wins.
        resume: Go on with an interrupted run, by the name of its --output, with the same options
            and files, to the very weights it would have had.
        overwrite: Begin anew where an unfinished run has the name of --output.
        num_workers: Processes that prepare the molecules; 0 = this one.
    """
    if resume is not None and (output is not None or overwrite):
        raise InputError("--resume: names the folder already, expected no --output or --overwrite")
    if (name := resume or output) is None:
        raise InputError("--output: got none, expected the folder for the run")
    if num_workers < 0:
        raise InputError(f"--num-workers: got {num_workers}, expected a whole number from 0")
    molecules = replace(  # whole paths, so that it can be resumed from anywhere
        molecules,
        exclude=tuple(map(_absolute, molecules.exclude)),
        molecules_folder=molecules.molecules_folder and _absolute(molecules.molecules_folder),
    )
    config = PretrainConfig(tuple(map(str, inputs)), molecules, network, training)

    console = make_console()
    if is_finished(resume, console):
        return
    if not config.files:
        raise InputError("INPUT: got no file, expected one or more tables of molecules")

    from molattn.pretraining import pretrain as run_pretraining
    from molattn.pretraining import write_pretraining
    from molattn.training.run_folder import final_folder, run_folder

    with (
        resumable(name, "pretrain"),
        run_folder(name, resume=resume is not None, overwrite=overwrite) as folder,
    ):
        run = run_pretraining(config, folder, console, num_workers=num_workers)
        write_pretraining(run, folder)
    print_line(console, _told(run.scores))
    print_line(
        console, f"{run.history.steps} steps, {run.seconds:.0f} s; written to {final_folder(name)}"
    )


def _told(scores: Mapping[str, Any]) -> str:
    figures = {
        "R2 of molecules set aside: descriptors": scores["descriptors"]["mean_r2"],
        "Morgan counts": scores["morgan"]["r2"],
        "atom pairs": scores["atom_pairs"]["r2"],
        "right of hidden: elements": scores["atoms"].get("element", {}).get("accuracy"),
        "bonds": scores["bonds"]["accuracy"],
    }
    return ", ".join(
        f"{name} {'none' if value is None else f'{value:.3f}'}" for name, value in figures.items()
    )


def _absolute(path: str) -> str:
    return str(Path(path).absolute())
