"""Options of tables: limits of molecules, workers, columns, and the split of the rows."""

from dataclasses import field, replace
from os.path import abspath
from typing import Annotated, Literal

from annotated_types import Ge, Interval
from pydantic import AfterValidator

from molattn.config.base import (
    COMMON,
    RESUMABLE,
    BelowOne,
    Count,
    Name,
    Names,
    NonNegative,
    NonNegativeInt,
    Positive,
    check_unused,
    checked,
)
from molattn.errors import InputError, quoted

TaskChoice = Literal["regression", "classification", "binary", "multiclass"]
TransformChoice = Literal["auto", "none", "log", "yeo_johnson"]
DescriptorSet = Literal["none", "lipinski", "all"]

Decimal = Literal[".", ","]

WORKER_OPTIONS = ("num_workers", "engine", "ray_address")
"""Options on which no result depends."""


@checked
class MoleculeLimits:
    """Molecules beyond a limit are not used; their reason codes begin with ``too_``.

    Args:
        max_length: Maximum number of characters of a SMILES.
        max_atoms: Maximum number of atoms, not counting implicit hydrogens.
        max_seconds: Maximum CPU time to read a molecule, in seconds.
    """

    max_length: Count = field(default=40_000, kw_only=True)
    max_atoms: Count = field(default=2_000, kw_only=True)
    max_seconds: Positive = field(default=10.0, kw_only=True)


@checked
class FileOptions:
    """How the file of a table is read.

    Args:
        decimal: Decimal mark of numbers that are text; commas in Excel and SDF files are found.
        sheet: Sheet of an Excel file; by default the first with the columns asked for.
        header_row: Row of an Excel file with the names of the columns; by default the first with
            the columns asked for.
    """

    decimal: Decimal = field(default=".", kw_only=True)
    sheet: Name | None = field(default=None, kw_only=True)
    header_row: Count | None = field(default=None, kw_only=True)


@checked
class WorkerOptions:
    """Which processes work on the rows of a table.

    Args:
        num_workers: Worker processes; 0 for none, or with --engine ray one for each CPU.
        engine: Where the workers are: on this machine (local) or on a Ray cluster (ray).
        ray_address: HOST:PORT of a running Ray cluster, or auto to find it; by default a new one.
    """

    num_workers: NonNegativeInt = field(default=0, kw_only=True)
    engine: Literal["local", "ray"] = field(default="local", kw_only=True)
    ray_address: Name | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_unused(self, (self.engine != "ray", "ray_address", "needs --engine ray"))


@checked
class TableColumns(MoleculeLimits, FileOptions):
    """The columns of a table of labeled molecules.

    Args:
        smiles_column: Column of SMILES.
        target_columns: Columns to predict; by default the only one that is left.
        relation_columns: Column with the relation of each target's labels, > or < if censored.
        interval_columns: Columns LOW HIGH of each target: its labels lie between the two.
        std_columns: Column with the standard error of each target's labels, which weights them.
        weight_column: Column of row weights, used in training and not in scores.
        partner_column: Column with the SMILES of a second molecule, such as the solvent.
        feature_columns: Numeric columns to use as extra features.
        featurizer: Name of the featurizer for atoms and bonds.
        split_column: Column with the split: train, val or test.
        num_workers: Worker processes that read the molecules; 0 reads them in the main process.
    """

    max_atoms: Count = field(default=2_000, kw_only=True, metadata=COMMON)
    smiles_column: str = field(default="smiles", metadata=COMMON)
    target_columns: Names = field(default=(), metadata=COMMON)
    relation_columns: tuple[str, ...] = ()
    interval_columns: tuple[str, ...] = ()
    std_columns: tuple[str, ...] = ()
    weight_column: str | None = None
    partner_column: str | None = None
    feature_columns: Names = ()
    featurizer: Name = "default"
    split_column: str | None = field(default=None, metadata=COMMON)
    num_workers: NonNegativeInt = field(default=0, metadata=RESUMABLE | COMMON)


@checked
class PrepareConfig(TableColumns, WorkerOptions):
    """What is kept of tables of molecules that are prepared for training and prediction.

    Args:
        pretraining_targets: Also what molattn pretrain predicts, about 1.5 kB for each molecule.
        resume: Go on with an interrupted command with the same inputs and options, if there is one.
        overwrite: Replace a store in --output.
        keep_columns: Other columns to keep, such as names or identifiers.
        pretraining_columns: Numeric columns, or patterns such as emb_*, that it predicts too.
    """

    pretraining_targets: bool = False
    resume: bool = field(default=False, metadata=COMMON)
    overwrite: bool = field(default=False, metadata=COMMON)
    keep_columns: tuple[str, ...] = ()
    pretraining_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unused(
            self,
            (not self.pretraining_targets, "pretraining_columns", "needs --pretraining-targets"),
            (self.overwrite, "resume", "cannot be used with --overwrite"),
        )


@checked
class DataConfig(TableColumns):
    """The table, and how its rows are split into training, validation and test rows.

    Splits by scaffold (Bemis-Murcko) or cluster (Butina; up to 50,000 molecules) keep similar
    molecules together. A split by time tests the newest molecules, and validates with the newest of
    the others. Rows of one date stay together. A molecule is as old as its oldest row; its rows of
    the test period are left out. A split column without validation rows has some of its training
    rows as such. Each row is a test row in one fold of a cross-validation; by time, fold k of N
    tests block k + 1 of N + 1 with the blocks before. Other folds may do without validation rows (a
    size of 0): each model is then calibrated by the predictions of the others.

    Args:
        atom_target_columns: Columns to predict with a list in each cell, a value for each atom.
        bond_target_columns: Likewise, a value for each bond.
        atom_index_columns: Column with the index of the atom (of a bond two, with both atoms) whose
            value is in the row, from 0, in place of lists.
        charge_columns: Those of the columns of atoms whose values sum to the charge of a molecule.
        target_units: Unit of each target, for tables and plots.
        task: Task type of each target; by default inferred from the labels.
        target_transform: Transform of each regression target; auto: none, log or yeo_johnson.
        positive_class: Positive class of each binary target; auto tells by the names.
        task_weights: Weight of each target in the loss.
        standardize: Use the largest fragment, neutral, as canonical tautomer; in prediction too.
        descriptors: RDKit 2D descriptors.
        morgan_counts: Length of a Morgan count fingerprint (radius 2); 0 for none.
        split: Split method; by default random.
        cluster_cutoff: Largest Tanimoto distance of a molecule from the center of its cluster.
        time_column: Column of dates or numbers for --split time; by default the order of the rows.
        folds: Number of cross-validation folds.
        repeats: Number of repeats of the cross-validation, with consecutive seeds.
        only_fold: Train and test only on this fold (1 for the first).
        final: After the folds, train a model on all rows.
        validation_size: Fraction of rows for the validation set.
        test_size: Fraction of rows for the test set; 0 for none.
        keep_training_molecules: Save SMILES and labels of the molecules in the model.
        keep_residuals: Save how wrong predictions of training molecules are without their labels.
        auxiliary_columns: Columns of other assays to learn from, on any rows; not predicted.
        auxiliary_data: Another table with auxiliary columns; its rows are training rows.
        auxiliary_weight: Weight of each auxiliary column in the loss.
    """

    atom_target_columns: Names = field(default=(), metadata=COMMON)
    bond_target_columns: Names = field(default=(), metadata=COMMON)
    atom_index_columns: Names = ()
    charge_columns: Names = ()
    target_units: tuple[str, ...] = ()
    task: tuple[TaskChoice, ...] = ()
    target_transform: tuple[TransformChoice, ...] = ("auto",)
    positive_class: tuple[str, ...] = ("auto",)
    task_weights: tuple[NonNegative, ...] = ()
    standardize: bool = False
    descriptors: DescriptorSet = field(default="lipinski", metadata=COMMON)
    morgan_counts: Annotated[int, Interval(ge=0, le=2**16)] = 0
    split: Literal["random", "scaffold", "cluster", "time"] | None = field(
        default=None, metadata=COMMON
    )
    cluster_cutoff: Annotated[float, Interval(ge=0, le=1)] = 0.65
    time_column: str | None = None
    folds: Annotated[int, Ge(2)] | None = field(default=None, metadata=COMMON)
    repeats: Annotated[int, Interval(ge=1, le=1000)] = 1
    only_fold: Count | None = None
    final: bool = field(default=True, metadata=COMMON)
    validation_size: BelowOne = field(default=0.1, metadata=COMMON)
    test_size: BelowOne = field(default=0.1, metadata=COMMON)
    keep_training_molecules: bool = False
    keep_residuals: bool = True
    auxiliary_columns: Names = ()
    auxiliary_data: Annotated[Name, AfterValidator(abspath)] | None = None
    auxiliary_weight: NonNegative = 1.0

    def __post_init__(self) -> None:
        has_folds = self.folds is not None
        needs = "needs --auxiliary-columns"
        check_unused(
            self,
            (
                bool(self.site_columns),
                "partner_column standardize auxiliary_columns std_columns",
                "cannot be used with --atom-target-columns or --bond-target-columns",
            ),
            (
                bool(self.site_columns) and not self.target_columns,
                "feature_columns",
                "needs --target-columns; atoms and bonds do not read features of molecules",
            ),
            (
                not self.site_columns,
                "atom_index_columns",
                "needs --atom-target-columns or --bond-target-columns",
            ),
            (not self.auxiliary_columns, "auxiliary_data auxiliary_weight", needs),
            (
                self.split_column is not None,
                "test_size folds",
                "cannot be used with --split-column",
            ),
            (self.split != "time", "time_column", "needs --split time"),
            (self.split != "cluster", "cluster_cutoff", "needs --split cluster"),
            (not has_folds, "only_fold repeats final", "needs --folds"),
            (has_folds, "test_size", "cannot be used with --folds, which test every row once"),
            (self.only_fold is not None, "repeats final", "cannot be used with --only-fold"),
        )
        if self.folds is not None and (self.only_fold or 1) > self.folds:
            raise InputError(
                f"got {self.only_fold}, expected 1 to {self.folds}", option="only_fold"
            )
        if self.validation_size == 0.0 and (not has_folds or self.split == "time"):
            reason = "got 0, expected a number above 0, as the validation rows calibrate the model"
            raise InputError(
                f"{reason}; 0 needs --folds, and not by time", option="validation_size"
            )
        if self.validation_size + self.test_size >= 1.0:
            sizes = f"got {self.validation_size} + {self.test_size} with --test-size"
            raise InputError(f"{sizes}, expected a sum below 1", option="validation_size")
        if self.task_weights and not any(self.task_weights):
            raise InputError("expected at least one positive number", option="task_weights")
        self._check_lengths()
        self._check_roles()

    def _check_lengths(self) -> None:
        """Raise InputError if an option has not a value for each column."""
        targets = len(self.target_columns) or 1
        for name in ("target_units", "task_weights", "std_columns"):
            self._check_length(name, 0)
        self._check_length("interval_columns", 0, each=2)
        self._check_length("relation_columns", 0, targets + len(self.auxiliary_columns))
        columns = len(self.target_columns) + len(self.site_columns)
        if len(self.atom_index_columns) not in (0, 1 + bool(self.bond_target_columns)):
            message = "expected the column of an atom, of bonds those of both atoms"
            raise InputError(message, option="atom_index_columns")
        self._check_length("task", 0, 1, targets + len(self.auxiliary_columns), columns)
        for name in ("target_transform", "positive_class"):
            self._check_length(name, 1)

    def _check_roles(self) -> None:
        """Raise InputError if a column has two roles, or a column of charges is none of atoms."""
        targets = len(self.target_columns) or 1
        used = {self.smiles_column, self.partner_column, self.weight_column, self.split_column}
        used |= {self.time_column, *self.target_columns, *self.feature_columns}
        used |= {*self.relation_columns[:targets], *self.interval_columns, *self.std_columns}
        if others := {*self.charge_columns} - {*self.atom_target_columns}:
            message = f"got {quoted(min(others))}, expected one of --atom-target-columns"
            raise InputError(message, option="charge_columns")
        roles = {
            "atom_target_columns": self.site_columns,
            "auxiliary_columns": self.auxiliary_columns,
        }
        for option, columns in roles.items():
            if both := used & {*columns}:
                message = f"got {quoted(min(map(str, both)))}, expected a column of no other option"
                raise InputError(message, option=option)

    @property
    def auxiliary(self) -> "DataConfig":
        """The columns of auxiliary labels as targets, with their relations and types of tasks.

        In each option their values follow the targets' values; by default tasks are inferred.
        """
        targets = len(self.target_columns) or 1
        return replace(
            self,
            target_columns=self.auxiliary_columns,
            relation_columns=self.relation_columns[targets:],
            interval_columns=(),
            std_columns=(),
            task=self.task[targets:],
            target_units=(),
            target_transform=("auto",),
            positive_class=("auto",),
            task_weights=(),
            auxiliary_columns=(),
            auxiliary_data=None,
            auxiliary_weight=type(self).auxiliary_weight,
        )

    @property
    def site_columns(self) -> tuple[str, ...]:
        """The columns of labels of atoms, then of bonds."""
        return self.atom_target_columns + self.bond_target_columns

    @property
    def trains_final(self) -> bool:
        """Whether a model of all rows follows the folds."""
        return self.folds is not None and self.only_fold is None and self.final

    def _check_length(self, name: str, *others: int, each: int = 1) -> None:
        """Check that an option has a value (``each``) for each target, or other numbers."""
        count = len(getattr(self, name))
        targets = len(self.target_columns) or 1
        if count not in (each * targets, *others):
            expected = "LOW HIGH" if each == 2 else "one"
            message = (
                f"got {count} values for {targets} target columns, expected {expected} for each"
            )
            raise InputError(message, option=name)
