r"""Make splits for choosing: cross-validation within the rows that are not for the test.

A validation part of fifty rows tells little of a candidate. Each split of a data set, given or made
by seed, becomes so many as there are folds: its training and validation rows are shared out, in
whole molecules or scaffolds, each fold is once for validation and the others for training, and the
test rows stay where they are. ``benchmark_accuracy.py --part validation`` then scores the folds and
leaves the test rows out::

    python scripts/fold_splits.py --data freesolv --output folds/freesolv.json
    python scripts/benchmark_accuracy.py --data freesolv --splits-file folds/freesolv.json \
        --seeds $(seq 0 14) --part validation --models candidates.yaml

Fold F of the split of seed S, both counted from 0, is that of seed S times the number of folds + F.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from accuracy.cases import SPLITS, Dataset, Split, load_dataset

from molattn.chem.groups import same_molecule, same_scaffold
from molattn.chem.split import fold_rows
from molattn.errors import InputError

_GROUPS = {"random": same_molecule, "scaffold": same_scaffold}


def folds_of(data: Dataset, method: str, seed: int, folds: int) -> list[Split]:
    """Return a split for each fold of the training and validation rows of a split.

    Raises:
        InputError: The data have no such split, or too few groups of rows for the folds.
    """
    given = data.split(method, seed)
    rows = sorted(given["train"] + given["val"])
    groups = _GROUPS[method]([data.smiles[row] for row in rows])
    parts = [[rows[place] for place in fold] for fold in fold_rows(groups, folds=folds, seed=seed)]
    return [
        {
            "train": sorted(set(rows).difference(part)),
            "val": part,
            "test": given["test"],
        }
        for part in parts
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data", required=True, metavar="NAME|PATH", help="NAME of ../shared/data, or a CSV file"
    )
    parser.add_argument("--smiles-column", default="smiles", metavar="NAME")
    parser.add_argument("--target-column", metavar="NAME", help="needed where there are several")
    parser.add_argument("--splits-file", type=Path, metavar="JSON", help="splits to start from")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N")
    parser.add_argument("--folds", type=int, default=5, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, metavar="JSON")
    options = parser.parse_args(arguments)
    try:
        data = load_dataset(
            options.data, options.smiles_column, options.target_column, options.splits_file
        )
        splits = {
            method: [
                split
                for seed in options.seeds
                for split in folds_of(data, method, seed, options.folds)
            ]
            for method in SPLITS
        }
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(splits) + "\n", encoding="utf-8")
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    count = len(options.seeds) * options.folds
    print(f"{count} splits of each kind, seeds 0 to {count - 1}, in {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
