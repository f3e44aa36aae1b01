"""Options of the commands that apply a saved model: to a table, or as a server."""

import math
import os
import re
from dataclasses import field
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Interval, MinLen

from molattn.config.base import (
    COMMON,
    Between,
    Count,
    Name,
    Names,
    NonNegativeInt,
    Threads,
    check_unused,
    checked,
)
from molattn.config.data import FileOptions, MoleculeLimits, WorkerOptions
from molattn.config.training import Device
from molattn.errors import InputError, quoted

TOKEN_VARIABLE = "MOLATTN_TOKEN"


@checked
class _TableOptions:
    """Options of a table.

    Args:
        smiles_column: Column of SMILES.
        partner_column: Column of SMILES of the second molecule; by default that of the training.
        as_given: Read molecules as written, where the model predicts their parent: the
            organic molecule without counterions and solvents, neutral (admet).
        batch_size: Maximum number of molecules per batch; batches of large molecules are smaller.
        threads: Number of CPU threads; more than one is faster only for wide networks.
        device: Device to predict on; auto is a GPU if there is one.
    """

    smiles_column: str = field(default="smiles", metadata=COMMON)
    partner_column: str | None = None
    as_given: bool = False
    batch_size: Count = 512
    threads: Threads = 1
    device: Device = field(default="auto", metadata=COMMON)


@checked
class TableConfig(MoleculeLimits, FileOptions, _TableOptions):
    """How a table is read, and the limits of its molecules."""


@checked
class StreamConfig(WorkerOptions, TableConfig):
    """Options of the commands that write a table with the columns of the input.

    Args:
        num_workers: Worker processes; auto is one for each core, at most 8, for 5,000 rows or more
            on a CPU, else 0.
        escape_formulas: In CSV and TSV files, write an apostrophe before text, other than numbers,
            that a spreadsheet would take for a formula, as it begins with =, +, - or @.
        resume: Go on with the same command, if it was interrupted (CSV, TSV, SDF and SMILES).
        precision: Floating-point precision of the network: fp32, or bf16 (mixed precision), which
            rounds to two or three digits and is faster on a CPU with AMX.
    """

    num_workers: NonNegativeInt | Literal["auto"] = field(
        default="auto", kw_only=True, metadata=COMMON
    )
    escape_formulas: bool = True
    resume: bool = field(default=False, metadata=COMMON)
    precision: Literal["fp32", "bf16"] = "fp32"


@checked
class IntervalConfig(TableConfig):
    """Options of the commands that show prediction intervals.

    Args:
        interval: Nominal coverage of the prediction intervals, from NAME_low to NAME_high.
    """

    interval: Between = field(default=0.9, metadata=COMMON)


@checked
class PredictConfig(IntervalConfig, StreamConfig):
    """Options of predictions.

    Args:
        neighbors: Number of training rows to write for each target: those that contribute most to
            the prediction of the model's Gaussian process.
        style: Readable has names with units, three digits and a sheet that says what the columns
            mean; machine has columns named by target and all digits. auto is readable for Excel
            files and for SMILES on a terminal.
        structures: Draw the molecules in the first column of an Excel file.
        explain_confidence: Add a column NAME_confidence_reason: what each confidence rests on; of
            two classes also the interval of the probability by the Gaussian process, from
            NAME_probability_low to NAME_probability_high.
        atoms: Write a row for each atom with the predictions of atoms, and not the other columns.
        bonds: Write a row for each bond with the predictions of bonds, and not the other columns.
        difference_from: Column of SMILES. Add how each row differs from its molecule there, with
            the interval: NAME_difference, or NAME_ratio of a target learned as a logarithm.
    """

    neighbors: Count | None = field(default=None, metadata=COMMON)
    style: Literal["auto", "readable", "machine"] = "auto"
    structures: bool = False
    explain_confidence: bool = False
    atoms: bool = False
    bonds: bool = False
    difference_from: str | None = field(default=None, metadata=COMMON)

    def __post_init__(self) -> None:
        super().__post_init__()
        names = "neighbors style structures explain_confidence difference_from"
        check_unused(
            self,
            (self.atoms, "bonds", "got --atoms too, expected one of them for each output"),
            (self.atoms or self.bonds, names, "cannot be used with --atoms or --bonds"),
        )


@checked
class PlanConfig(PredictConfig):
    """Options of a plan of measurements.

    Args:
        count: Number of molecules to choose.
        target: Property to improve, if the model has several.
        goal: What to look for: "above X" (">X"), "below X" ("<X") or "X to Y" in the unit of the
            target, best first those that are the most likely to be there; or best, the highest
            values.
        minimize: Low values are the good ones, not high ones.
        acquisition: upper_confidence_bound (mean + standard deviation), expected_improvement over
            the best training label, uncertainty (standard deviation), or greedy (mean).
        cost_column: Column with the cost of each measurement, by which expected_improvement,
            uncertainty or the probability to meet the goal is divided.
    """

    count: Count = field(default=96, metadata=COMMON)
    target: str | None = field(default=None, metadata=COMMON)
    goal: str = field(default="best", metadata=COMMON)
    minimize: bool = field(default=False, metadata=COMMON)
    acquisition: Literal[
        "upper_confidence_bound", "expected_improvement", "uncertainty", "greedy"
    ] = field(default="upper_confidence_bound", metadata=COMMON)
    cost_column: str | None = field(default=None, metadata=COMMON)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unused(self, (True, "atoms bonds", "cannot be used in a plan of molecules"))
        if self.goal_range() is not None:
            if self.minimize or self.acquisition != "upper_confidence_bound":
                contradiction = "--minimize" if self.minimize else "--acquisition"
                raise InputError(f"cannot be used with {contradiction}", option="goal")
        elif self.acquisition in ("upper_confidence_bound", "greedy") and self.cost_column:
            message = "needs --goal, or --acquisition expected_improvement or uncertainty"
            raise InputError(message, option="cost_column")

    @property
    def goal_words(self) -> list[str]:
        """The words of the goal, with ``above`` for > and >=, and ``below`` for < and <=."""
        return re.sub(
            r"^\s*(?:(>=?|≥)|<=?|≤)", lambda sign: "above " if sign[1] else "below ", self.goal
        ).split()

    def goal_range(self) -> tuple[float, float] | None:
        """Return the lowest and the highest value that meet the goal; None = the best values."""
        words = self.goal_words
        if words == ["best"]:
            return None
        match words:
            case ["above", low]:
                texts = low, "inf"
            case ["below", high]:
                texts = "-inf", high
            case [low, "to", high]:
                texts = low, high
            case _:
                texts = ("nan", "nan")
        try:
            low, high = map(float, texts)
        except ValueError:
            low = high = math.nan
        if low < high and (math.isfinite(low) or math.isfinite(high)):
            return low, high
        message = 'expected best, "above X", "below X", or "X to Y" with X below Y'
        raise InputError(f"got {quoted(self.goal)}, {message}", option="goal")


@checked
class EmbedConfig(StreamConfig):
    """Options of embeddings.

    Args:
        atoms: Write a row for each atom instead of each molecule: row (of the molecule in the
            input, from 1), atom (number in the input, from 0), symbol, smiles, embedding and error.
    """

    atoms: bool = field(default=False, metadata=COMMON)


@checked
class ExplainConfig(IntervalConfig):
    """Options of explanations.

    Args:
        method: Method that scores atoms and bonds, one or more of: attention,
            integrated_gradients, occlusion.
        target: Property to explain, by default the first. Of three or more classes, name one by
            its prediction column, such as phase_probability_solid; by default the most probable.
        check: Test each method by deletion and insertion of atoms, on up to 200 molecules.
        limit: Explain only the first N rows.
    """

    method: Annotated[Names, MinLen(1)] = field(default=("integrated_gradients",), metadata=COMMON)
    target: str | None = field(default=None, metadata=COMMON)
    check: bool = field(default=False, metadata=COMMON)
    limit: Count | None = field(default=None, metadata=COMMON)


@checked
class ExportConfig:
    """Options of an export.

    Args:
        to: Format of the file.
        with_gaussian_process: Export the Gaussian process too. The file then contains counts of
            substructures and embeddings of training molecules.
    """

    to: Literal["onnx"] = "onnx"
    with_gaussian_process: bool = False


@checked
class _ServerOptions:
    """Options of the server.

    Args:
        host: Address to listen on; one that other machines can reach needs --token.
        port: Port to listen on; 0 = any free one.
        token: Secret that each request must send, as "Authorization: Bearer TOKEN". Better given by
            the environment variable MOLATTN_TOKEN, which other users of the machine do not see.
        reference: Table of molecules, such as marketed drugs, among whose predictions those of a
            request have a percentile.
        max_molecules: Most molecules of a JSON request; tables have no such limit.
        max_request_size: Most megabytes of a request.
        max_queue: Most molecules that wait; a request beyond that is refused with status 429.
        batch_size: Most molecules that are predicted together, of one request or more.
        threads: Number of CPU threads; more than one is faster only for wide networks.
        device: Device to predict on.
    """

    host: Name = "127.0.0.1"
    port: Annotated[int, Interval(ge=0, le=65535)] = 8000
    token: str | None = field(default=None, repr=False)
    reference: Path | None = None
    max_molecules: Count = 10_000
    max_request_size: Count = 100
    max_queue: Count = 20_000
    batch_size: Count = 256
    threads: Threads = 1
    device: Device = "cpu"


@checked
class ServeConfig(MoleculeLimits, _ServerOptions):
    """Options of the server, and the limits of its molecules."""

    def __post_init__(self) -> None:
        if self.token is None and os.environ.get(TOKEN_VARIABLE):
            object.__setattr__(self, "token", os.environ[TOKEN_VARIABLE])
        least = max(self.max_molecules, self.batch_size)
        if self.max_queue < least:
            message = f"got {self.max_queue}, expected at least --max-molecules and --batch-size"
            raise InputError(f"{message} ({least})", option="max_queue")
        token = self.token or ""  # a header cannot carry others
        if not token.isascii() or not token.isprintable() or " " in token:
            raise InputError("expected printable ASCII characters without spaces", option="token")
        if not self.token and not is_loopback(self.host):
            raise InputError(
                f"is missing: other machines can reach {self.host}, expected a secret for them, "
                f"by this option or the variable {TOKEN_VARIABLE}",
                option="token",
            )


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine alone."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
