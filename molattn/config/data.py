"""Options of the table and its split."""

from dataclasses import dataclass, field
from math import inf
from typing import Literal, get_args

from molattn.config.base import COMMON, COMMON_IN_TRAIN, RESUMABLE, TUNABLE
from molattn.config.limits import MoleculeLimits
from molattn.config.validation import check, check_choice, check_unused, option, plain_value
from molattn.config.workers import WorkerOptions, check_workers
from molattn.errors import InputError, check_one_of, quoted

__all__ = ["DataConfig", "PrepareConfig", "TableColumns", "TaskChoice", "TransformChoice"]

TaskChoice = Literal["regression", "classification", "binary", "multiclass"]
TransformChoice = Literal["auto", "none", "log", "yeo_johnson", "ranks"]
DescriptorSet = Literal["none", "lipinski", "all"]
SplitMethod = Literal["random", "scaffold", "cluster", "order"]
MOST_MORGAN_COUNTS = 2**16


@dataclass(frozen=True)
class TableColumns(MoleculeLimits):
    """The columns of a table of labeled molecules.

    Args:
        smiles_column: Column of SMILES.
        target_columns: Columns to predict.
        relation_columns: Column with the relation of the labels of each target, > or < of a
            censored one; a label such as >10 needs none.
        weight_column: Column of row weights, used in training and not in scores.
        partner_column: Column with the SMILES of a second molecule, such as the solvent.
        feature_columns: Numeric columns to use as extra features.
        featurizer: Name of the featurizer for atoms and bonds.
        split_column: Column with the split: train, val or test.
        order_column: Column of numbers or ISO dates by which --split order sorts the rows.
        num_workers: Worker processes that read the molecules; 0 reads them in the main process.
    """

    smiles_column: str = field(default="smiles", metadata=COMMON)
    target_columns: tuple[str, ...] = field(default=(), metadata=COMMON)
    relation_columns: tuple[str, ...] = ()
    weight_column: str | None = None
    partner_column: str | None = None
    feature_columns: tuple[str, ...] = ()
    featurizer: str = "default"
    split_column: str | None = field(default=None, metadata=COMMON)
    order_column: str | None = None
    num_workers: int = field(default=0, metadata=RESUMABLE)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "num_workers", lambda count: count >= 0, "a whole number of at least 0", int)
        check(self, "featurizer", bool, "the name of a featurizer", str)
        for name in ("target_columns", "relation_columns", "feature_columns"):
            if not isinstance(value := plain_value(self, name), tuple):
                got = quoted(value)
                raise InputError(f"{option(name)}: got {got}, expected a tuple of values")
        for name in ("target_columns", "feature_columns"):
            if len(set(getattr(self, name))) != len(getattr(self, name)):
                got = list(getattr(self, name))
                raise InputError(f"{option(name)}: got {got}, expected each column only once")


@dataclass(frozen=True)
class PrepareConfig(TableColumns, WorkerOptions):
    """What is kept of tables of molecules that are prepared for training and prediction.

    Args:
        pretraining_targets: Also calculate what molattn pretrain learns to predict, about 1.5 kB
            for each molecule, and 4 bytes for each of the --pretraining-columns.
        resume: Go on with an interrupted command that wrote to the same --output; begin if there is
            none. Inputs and options must be the same, except for those of the workers.
        overwrite: Replace a store in --output.
        keep_columns: Other columns to keep, such as names or identifiers.
        pretraining_columns: Numeric columns, or patterns such as emb_*, that it learns too, for
            example the embedding of another network.
    """

    pretraining_targets: bool = False
    resume: bool = False
    overwrite: bool = False
    keep_columns: tuple[str, ...] = ()
    pretraining_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_workers(self)
        for name in ("keep_columns", "pretraining_columns"):
            if not isinstance(value := getattr(self, name), tuple):
                raise InputError(f"{option(name)}: got {quoted(value)}, expected a tuple of names")
        if self.pretraining_columns and not self.pretraining_targets:
            raise InputError("--pretraining-columns needs --pretraining-targets")
        if self.resume and self.overwrite:
            raise InputError("--resume cannot be used with --overwrite")


@dataclass(frozen=True)
class DataConfig(TableColumns):
    """The table, and how its rows are split into training, validation and test rows.

    Splits by scaffold (Bemis-Murcko) or cluster (Butina; up to 50,000 molecules) keep similar
    molecules together. A split by order takes the last rows as test rows. If a split column has no
    validation rows, some of the training rows become validation rows. Without test rows (a size of
    0, or a split column that marks none) the model has no test score. Every row is a test row in
    exactly one fold of a cross-validation, whose models need no validation rows (a size of 0):
    each is then calibrated by the predictions of the others.

    Args:
        target_units: Unit of each target, for tables and plots.
        task: Task type of each target; by default inferred from the labels.
        target_transform: Transform of each regression target; auto selects none, log or
            yeo_johnson.
        positive_class: Positive class of each binary target; auto tells by the names.
        task_weights: Weight of each target in the loss.
        standardize: Standardize molecules, in prediction too: largest fragment, neutral form and
            canonical tautomer.
        descriptors: RDKit 2D descriptors.
        morgan_counts: Length of a Morgan count fingerprint (radius 2); 0 for none.
        split: Split method; by default random.
        cluster_cutoff: Tanimoto distance cutoff of the Butina clustering.
        split_duplicates: Allow the same molecule in different parts of the split.
        folds: Number of cross-validation folds.
        repeats: Number of repeats of the cross-validation, with consecutive seeds.
        only_fold: Train and test only on this fold (1 for the first).
        final: After the folds, train a model on all rows.
        validation_size: Fraction of rows for the validation set.
        test_size: Fraction of rows for the test set; 0 for none.
        keep_training_molecules: Save SMILES and labels of the molecules in the model.
    """

    target_units: tuple[str, ...] = ()
    task: tuple[TaskChoice, ...] = ()
    target_transform: tuple[TransformChoice, ...] = ("auto",)
    positive_class: tuple[str, ...] = ("auto",)
    task_weights: tuple[float, ...] = ()
    standardize: bool = False
    descriptors: DescriptorSet = field(default="lipinski", metadata=COMMON | TUNABLE)
    morgan_counts: int = field(default=0, metadata=TUNABLE)
    split: SplitMethod | None = field(default=None, metadata=COMMON)
    cluster_cutoff: float = 0.65
    split_duplicates: bool = False
    folds: int | None = field(default=None, metadata=COMMON_IN_TRAIN)
    repeats: int = 1
    only_fold: int | None = None
    final: bool = field(default=False, metadata=COMMON_IN_TRAIN)
    validation_size: float = field(default=0.1, metadata=COMMON)
    test_size: float = field(default=0.1, metadata=COMMON)
    keep_training_molecules: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.descriptors, bool):  # of a search or an estimator of earlier versions
            object.__setattr__(self, "descriptors", "all" if self.descriptors else "none")
        check_choice(self, "descriptors", get_args(DescriptorSet))
        if self.split is not None:
            check_choice(self, "split", get_args(SplitMethod))
        below_one = "a number of at least 0 and below 1"
        check(self, "validation_size", lambda size: 0.0 <= size < 1.0, below_one)
        if self.validation_size == 0.0 and self.folds is None:
            raise InputError(
                f"--validation-size: got {self.validation_size}, expected a number above 0, as the "
                "validation rows calibrate the model; with --folds it may be 0, as the rows left "
                "out of each fold do"
            )
        check(self, "test_size", lambda size: 0.0 <= size < 1.0, below_one)
        if self.validation_size + self.test_size >= 1.0:
            raise InputError(
                f"--validation-size + --test-size: got {self.validation_size} + {self.test_size}, "
                "expected a sum below 1"
            )
        size = f"a whole number from 0 to {MOST_MORGAN_COUNTS}"
        check(self, "morgan_counts", lambda n: 0 <= n <= MOST_MORGAN_COUNTS, size, int)
        check(self, "cluster_cutoff", lambda cut: 0.0 <= cut < 1.0, below_one)
        if self.split_column is not None:
            reason = "cannot be used with --split-column, which marks the test rows"
            check_unused(self, "test_size", reason)
        if self.split != "cluster":
            check_unused(self, "cluster_cutoff", "is used only with --split cluster")
        if self.split != "order":
            check_unused(self, "order_column", "is used only with --split order")
        elif self.order_column is None:
            raise InputError("--split order needs --order-column")
        if self.split in ("scaffold", "cluster"):
            reason = f"cannot be used with --split {self.split}, which keeps duplicates together"
            check_unused(self, "split_duplicates", reason)
        self._check_folds()
        self._check_lists()

    def _check_folds(self) -> None:
        check(self, "repeats", lambda n: 1 <= n <= 1000, "a whole number from 1 to 1000", int)
        if self.folds is None:
            for name in ("only_fold", "repeats", "final"):
                check_unused(self, name, "needs --folds")
            return
        check(self, "folds", lambda count: count >= 2, "a whole number of at least 2", int)
        reason = "cannot be used with --folds, which uses every row as a test row once"
        check_unused(self, "test_size", reason)
        if self.only_fold is not None:
            check(self, "only_fold", lambda n: 1 <= n <= self.folds, f"1 to {self.folds}", int)
            for name in ("repeats", "final"):
                check_unused(self, name, "cannot be used with --only-fold, which trains one fold")
        if self.split_column is not None:
            raise InputError("--folds cannot be used with --split-column, which gives one split")
        if self.split == "order":
            raise InputError("--folds cannot be used with --split order, which gives one split")

    def _check_lists(self) -> None:
        for name in ("target_units", "task", "target_transform", "positive_class", "task_weights"):
            if not isinstance(value := plain_value(self, name), tuple):
                got = quoted(value)
                raise InputError(f"{option(name)}: got {got}, expected a tuple of values")
        targets = len(self.target_columns)
        for name, fits in (
            ("relation_columns", (0, targets)),
            ("target_units", (0, targets)),
            ("task_weights", (0, targets)),
            ("task", (0, 1, targets)),
            ("target_transform", (1, targets)),
            ("positive_class", (1, targets)),
        ):
            if (got := len(getattr(self, name))) not in fits:
                raise InputError(
                    f"{option(name)}: got {got} values for {targets} target columns, expected one "
                    "for each"
                )
        for name, kinds in (("task", TaskChoice), ("target_transform", TransformChoice)):
            for value in getattr(self, name):
                check_one_of(option(name), value, get_args(kinds))
        for weight in self.task_weights:
            if (
                isinstance(weight, bool)
                or not isinstance(weight, (int, float))
                or not (0.0 <= weight < inf)
            ):
                raise InputError(f"--task-weights: got {quoted(weight)}, expected numbers >= 0")
        if self.task_weights and not any(self.task_weights):
            raise InputError("--task-weights: expected at least one positive number")
