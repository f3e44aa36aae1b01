"""Options of the commands that apply a saved model to a table."""

from typing import Annotated, Literal

from annotated_types import MinLen

from molattn.config.base import Between, Count, Names, Threads, checked
from molattn.config.data import MoleculeLimits, WorkerOptions

__all__ = ["EmbedConfig", "ExplainConfig", "PredictConfig", "StreamConfig", "TableConfig"]


@checked
class _TableOptions:
    """Options of a table.

    Args:
        smiles_column: Column of SMILES.
        partner_column: Column of SMILES of the second molecule; by default the column used in
            training.
        batch_size: Maximum number of molecules per batch; batches of large molecules are smaller.
        threads: Number of CPU threads; more than one is faster only for wide networks.
    """

    smiles_column: str = "smiles"
    partner_column: str | None = None
    batch_size: Count = 256
    threads: Threads = 1


@checked
class TableConfig(MoleculeLimits, _TableOptions):
    """How a table is read, and the limits of its molecules."""


@checked
class StreamConfig(WorkerOptions, TableConfig):
    """Options of the commands that write a table with the columns of the input.

    Args:
        escape_formulas: In CSV and TSV files, write an apostrophe before text that a spreadsheet
            would take for a formula: text other than a number that begins with =, +, - or @. Column
            names are included.
        resume: Go on with an interrupted run that wrote to the same --output, a CSV, TSV, SDF or
            SMILES file, compressed or not; start with the first row if there is no such file at
            all. Model, input and options must be the same, except for those of the workers.
        precision: Floating-point precision of the network: fp32, or bf16 (mixed precision), which
            rounds to two or three digits and is faster on a CPU with AMX.
    """

    escape_formulas: bool = True
    resume: bool = False
    precision: Literal["fp32", "bf16"] = "fp32"


@checked
class IntervalConfig(TableConfig):
    """Options of the commands that show prediction intervals.

    Args:
        interval: Nominal coverage of the prediction intervals, written to the columns NAME_low and
            NAME_high.
    """

    interval: Between = 0.9


@checked
class PredictConfig(IntervalConfig, StreamConfig):
    """Options of predictions.

    Args:
        neighbors: Number of training rows to write for each target: those that contribute most to
            its prediction, by the Gaussian process of the model.
        relation_columns: Column with the relation of the labels of each target, by default
            those of the training, if the table has them; censored labels are not scored.
    """

    neighbors: Count | None = None
    relation_columns: tuple[str, ...] = ()


@checked
class EmbedConfig(StreamConfig):
    """Options of embeddings.

    Args:
        atoms: Write a row for each atom instead of each molecule: row (of the molecule in the
            input, from 1), atom (number in the input, from 0), symbol, smiles, embedding and error.
    """

    atoms: bool = False


@checked
class ExplainConfig(IntervalConfig):
    """Options of explanations.

    Args:
        method: Method that scores atoms and bonds, one or more of: attention, rollout,
            gradient_attention, integrated_gradients, occlusion.
        target: Property to explain, by default the first. Of three or more classes, name one by
            its prediction column, such as phase_probability_solid; by default the most probable
            class of each molecule is explained.
        check: Test each method by deletion and insertion of atoms against random rankings, on up to
            200 random molecules of the table, and report the result on the page.
        limit: Explain only the first N rows.
    """

    method: Annotated[Names, MinLen(1)] = ("integrated_gradients",)
    target: str | None = None
    check: bool = False
    limit: Count | None = None
