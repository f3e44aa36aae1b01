"""Options of the table and its parts."""

from dataclasses import dataclass
from math import inf
from typing import Literal, get_args

from molattn.config.validation import check, check_choice, check_idle, option
from molattn.errors import InputError, quoted

__all__ = ["DataConfig", "TaskChoice"]

TaskChoice = Literal["regression", "classification", "binary", "multiclass"]
SplitMethod = Literal["random", "scaffold", "cluster", "order"]
MOST_MORGAN_COUNTS = 2**16


@dataclass(frozen=True)
class DataConfig:
    """The table, and how its rows are parted into training, validation and test.

    A scaffold (Bemis-Murcko) or a cluster (Butina; 50,000 molecules at most) keeps like molecules
    together; by order, the last rows test. Where a split column names no validation rows, some
    training rows are set aside. What a fold tests no other does.

    Args:
        smiles_column: Column that holds the SMILES.
        target_columns: Columns to learn.
        target_units: Unit of each target, for tables and plots.
        task: What targets are; by default their labels decide.
        task_weights: Weight of each target in the loss.
        weight_column: Column of each row's weight in the loss.
        partner_column: Column of a second molecule, such as the solvent.
        feature_columns: Columns of numbers to read beside the molecule.
        descriptors: Read RDKit's 2-D descriptors beside the molecule.
        morgan_counts: Morgan counts (radius 2) to read; 0 for none.
        featurizer: Atom and bond features, by name.
        split_column: Column of each row's part: train, val or test.
        split: Split method; by default random.
        order_column: Numbers or ISO dates for the split by order.
        cluster_cutoff: Largest Tanimoto distance in a cluster.
        split_duplicates: Let rows of a molecule part.
        folds: Cross-validate in so many rounds.
        repeats: How often, each time with the next seed.
        only_fold: Train only this round, counted from 1.
        validation_size: Part of the rows to validate and calibrate by.
        test_size: Part of the rows for the final score.
    """

    smiles_column: str = "smiles"
    target_columns: tuple[str, ...] = ()
    target_units: tuple[str, ...] = ()
    task: tuple[TaskChoice, ...] = ()
    task_weights: tuple[float, ...] = ()
    weight_column: str | None = None
    partner_column: str | None = None
    feature_columns: tuple[str, ...] = ()
    descriptors: bool = True
    morgan_counts: int = 0
    featurizer: str = "default"
    split_column: str | None = None
    split: SplitMethod | None = None
    order_column: str | None = None
    cluster_cutoff: float = 0.65
    split_duplicates: bool = False
    folds: int | None = None
    repeats: int = 1
    only_fold: int | None = None
    validation_size: float = 0.1
    test_size: float = 0.1

    def __post_init__(self) -> None:
        if self.split is not None:
            check_choice(self, "split", get_args(SplitMethod))
        for name in ("validation_size", "test_size"):
            check(self, name, lambda size: 0.0 < size < 1.0, "a number between 0 and 1")
        if self.validation_size + self.test_size >= 1.0:
            raise InputError(
                f"--validation-size + --test-size: got {self.validation_size} + {self.test_size}, "
                "expected a sum below 1"
            )
        size = f"a whole number from 0 to {MOST_MORGAN_COUNTS}"
        check(self, "morgan_counts", lambda n: 0 <= n <= MOST_MORGAN_COUNTS, size, int)
        check(self, "featurizer", bool, "the name of a featurizer", str)
        check(self, "cluster_cutoff", lambda cut: 0.0 <= cut < 1.0, "a number from 0 below 1")
        if self.split_column is not None:
            check_idle(self, "test_size", "without --split-column, which says what tests")
        if self.split != "cluster":
            check_idle(self, "cluster_cutoff", "with --split cluster alone")
        if (self.order_column is not None) != (self.split == "order"):
            raise InputError(
                f"--split: got {self.split or 'random'} "
                f"{'without' if self.order_column is None else 'with'} --order-column, expected "
                "--split order and --order-column together"
            )
        if self.split_duplicates and self.split in ("scaffold", "cluster"):
            raise InputError(
                f"--split-duplicates: got it with --split {self.split}, which keeps more than "
                "duplicates together; expected it with another split"
            )
        self._check_folds()
        self._check_lists()

    def _check_folds(self) -> None:
        check(self, "repeats", lambda count: count >= 1, "a whole number of at least 1", int)
        if self.folds is None:
            if self.only_fold is not None or self.repeats != 1:
                raise InputError("--only-fold, --repeats: expected with --folds alone")
            return
        check(self, "folds", lambda count: count >= 2, "a whole number of at least 2", int)
        check_idle(self, "test_size", "without --folds, which share out all rows")
        if self.only_fold is not None:
            check(self, "only_fold", lambda n: 1 <= n <= self.folds, f"1 to {self.folds}", int)
            check_idle(self, "repeats", "without --only-fold, which is one round")
        if self.split_column is not None or self.split == "order":
            raise InputError(
                "--folds: got it with --split-column or --split order, which part the rows once; "
                "expected it with another split"
            )

    def _check_lists(self) -> None:
        for name in ("target_columns", "target_units", "task", "task_weights", "feature_columns"):
            if not isinstance(getattr(self, name), tuple):
                got = quoted(getattr(self, name))
                raise InputError(f"{option(name)}: got {got}, expected a tuple")
        for name in ("target_columns", "feature_columns"):
            if len(set(getattr(self, name))) != len(getattr(self, name)):
                got = list(getattr(self, name))
                raise InputError(f"{option(name)}: got {got}, expected each column once")
        targets = len(self.target_columns)
        for name, fits in (
            ("target_units", (0, targets)),
            ("task_weights", (0, targets)),
            ("task", (0, 1, targets)),
        ):
            if (got := len(getattr(self, name))) not in fits:
                raise InputError(
                    f"{option(name)}: got {got}, expected one for each of the {targets} target "
                    "columns"
                )
        for task in self.task:
            if task not in get_args(TaskChoice):
                choices = ", ".join(get_args(TaskChoice))
                raise InputError(f"--task: got {quoted(task)}, expected one of {choices}")
        for weight in self.task_weights:
            if (
                isinstance(weight, bool)
                or not isinstance(weight, (int, float))
                or not (0.0 <= weight < inf)
            ):
                raise InputError(f"--task-weights: got {quoted(weight)}, expected numbers from 0")
        if self.task_weights and not any(self.task_weights):
            raise InputError("--task-weights: got zeros alone, expected a positive number")
