r"""Make splits for choosing: cross-validation within the rows that are for no test.

A validation part of fifty rows tells little of a candidate, and may be for the test under another
seed. Here the rows that any split, given or made by seed, has for the test are set aside for all.
The others are shared out into folds of whole molecules, or of whole scaffolds, and each fold is
once for validation while the others train; then all over again in another order. As in a balanced
split, a scaffold larger than half of a fold is always for training.
``benchmark_accuracy.py --part validation`` scores the folds and leaves the test rows out::

    python -m scripts.accuracy.fold_splits --data esol --output runs/folds/esol.json
    python -m scripts.accuracy.benchmark_accuracy --models candidates.yaml --part validation \
        --data esol --splits-file runs/folds/esol.json --seeds $(seq 0 14) \
        --results runs/folds.csv
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

from molattn.chem.split import fold_split
from molattn.errors import InputError
from scripts.accuracy.cases import GROUPS, SPLITS, Dataset, Split, load_dataset, table_options


def rows_for_tests(data: Dataset, methods: Iterable[str], seeds: Iterable[int]) -> set[int]:
    """Return the rows that are for the test in a split of any of the methods and seeds."""
    return {row for case in product(methods, seeds) for row in data.split(*case)["test"]}


def fold_splits(
    data: Dataset, method: str, test: set[int], folds: int, repeats: int
) -> list[Split]:
    """Return a split for each fold of each repetition, all with the same rows for the test.

    Raises:
        InputError: There are too few groups of rows for the folds.
    """
    rows = [row for row in data.usable if row not in test]
    groups = GROUPS[method]([data.smiles[row] for row in rows])
    most = max(1, len(rows) / folds / 2)
    dealt = [[rows[place] for place in group] for group in groups if len(group) <= most]
    try:
        parts = [
            set(
                fold_split(
                    dealt, folds=folds, fold=fold, validation_size=0, seed=seed
                ).test.tolist()
            )
            for seed in range(repeats)
            for fold in range(1, folds + 1)
        ]
    except InputError as error:
        raise InputError(f"{data.name}, {method}: {error}") from error
    return [
        {
            "train": [row for row in rows if row not in fold],
            "val": sorted(fold),
            "test": sorted(test),
        }
        for fold in parts
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[table_options()],
    )
    parser.add_argument(
        "--data", required=True, metavar="NAME|PATH", help="NAME of ../shared/data, or a CSV file"
    )
    parser.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        default=[0, 1, 2],
        metavar="N",
        help="of splits whose test rows are set aside (default: 0 1 2)",
    )
    parser.add_argument("--folds", type=int, default=5, metavar="N", help="(default: 5)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="(default: 3)")
    parser.add_argument("--output", type=Path, required=True, metavar="JSON")
    options = parser.parse_args(arguments)
    try:
        if options.repeats < 1:
            raise InputError(f"--repeats: got {options.repeats}, expected at least 1")
        columns = options.smiles_column, options.target_column, options.splits_file
        data = load_dataset(options.data, *columns)
        methods = [method for method in SPLITS if data.splits is None or method in data.splits]
        test = rows_for_tests(data, methods, options.seeds)
        splits = {
            method: fold_splits(data, method, test, options.folds, options.repeats)
            for method in methods
        }
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(splits) + "\n", encoding="utf-8")
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{len(test)} rows are for a test, {len(data.usable) - len(test)} for choosing")
    for method, made in splits.items():
        sizes = sorted(len(split["val"]) for split in made)
        print(
            f"{method}: seeds 0 to {len(made) - 1}, each with {sizes[0]} to {sizes[-1]} rows to "
            "validate and the rest to train"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
