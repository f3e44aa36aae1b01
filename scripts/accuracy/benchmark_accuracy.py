r"""Compare the accuracy of models on the same datasets, splits and seeds, on one thread each.

A run is a model trained on one split of one dataset. Each is a process of its own, its scores are
added to a CSV file when it has ended, and a run that is in the file is not made again: interrupt
the comparison as you like, the same command goes on. Models are those of a YAML file; a model whose
packages are missing is left out, and Chemprop or LightGBM may live in an environment of their own.

    # Everything: five datasets beside the checkout, random and scaffold splits, three seeds
    python -m scripts.accuracy.benchmark_accuracy --python chemprop=/envs/chemprop/bin/python \
        lightgbm=/envs/lightgbm/bin/python

    # Two models on one dataset, two runs at a time
    python -m scripts.accuracy.benchmark_accuracy --data freesolv --only molattn lightgbm --jobs 2

    # Five folds of development sets, by name; a seed is a fold
    python -m scripts.accuracy.benchmark_accuracy --data CHEMBL218_EC50 caco2_wang --seeds 0 1 2 3 4

    # A table of your own; splits are made by seed
    python -m scripts.accuracy.benchmark_accuracy --data assay.csv --target-column pIC50 \
        --splits scaffold

    # To search for options: the test rows are gone, those for validation are scored
    python -m scripts.accuracy.benchmark_accuracy --models candidates.yaml --part validation

    # What is there so far, with molattn beside its peers
    python -m scripts.accuracy.benchmark_accuracy --table --reference molattn --markdown tables.md

A file of models says of each what it is and which options are not at their defaults
(scripts/experiments/models.yaml):

    wider:
      kind: molattn            # or chemprop, lightgbm, attentivefp, svm, maplight, minimol
      options: {width: 256, descriptors: all}

The seed of a model is that of its split. Seconds of the processor are those of the whole training
process, its start included; the scripts of scripts/accuracy/peers predict in the same process.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from molattn.errors import InputError, quoted
from scripts.accuracy.cases import PARTS, SPLITS, dataset_name, load_dataset, table_options
from scripts.accuracy.development import SCORES, main_scores
from scripts.accuracy.models import find_ready, pythons_of, read_models
from scripts.accuracy.results import Result, Results
from scripts.accuracy.runs import Run, runs_to_do, without_done
from scripts.accuracy.tables import report, select
from scripts.benchmarks.commands import CommandError, Commands, StoppedError

_EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"
_DATA = ("esol", "freesolv", "lipo", "bace", "bbbp")
_SEEDS = (0, 1, 2)
_SECONDS_OF_DEAFNESS = 0.5


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[table_options()],
    )
    what = parser.add_argument_group("what is compared")
    what.add_argument(
        "--data",
        nargs="+",
        metavar="NAME|PATH",
        help=f"NAME of ../shared/data, or a CSV file (default: {' '.join(_DATA)})",
    )
    what.add_argument("--splits", nargs="+", choices=SPLITS, help="(default: all that it has)")
    what.add_argument("--seeds", nargs="+", type=int, help="(default: 0 1 2)")
    what.add_argument("--part", choices=PARTS, default="test", help="rows to score")
    what.add_argument("--models", type=Path, default=_EXPERIMENTS / "models.yaml", metavar="YAML")
    what.add_argument("--only", nargs="+", metavar="MODEL", help="some of the models")
    how = parser.add_argument_group("how it is run")
    how.add_argument(
        "--python", nargs="+", default=[], metavar="KIND=PATH", help="Python of a kind of model"
    )
    how.add_argument("--jobs", type=int, default=1, help="runs at once (default: %(default)s)")
    how.add_argument("--keep", type=Path, metavar="FOLDER", help="for models, predictions and logs")
    how.add_argument(
        "--results",
        type=Path,
        default=Path("runs/accuracy.csv"),
        metavar="CSV",
        help="file to add scores to (default: %(default)s)",
    )
    show = parser.add_argument_group("what is shown")
    show.add_argument("--table", action="store_true", help="run nothing, show what is there")
    show.add_argument("--reference", metavar="MODEL", help="model to compare with all others")
    show.add_argument(
        "--metric", nargs="+", choices=SCORES, help="(default: the main score of each)"
    )
    show.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there too")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    results = Results(options.results)
    try:
        if options.table and not options.results.is_file():
            raise InputError(f"--results: {options.results} is not there, expected scores of runs")
        code = 0 if options.table else compare(options, results)
        if code != 130:
            show(options, results)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return code


def compare(options: argparse.Namespace, results: Results) -> int:
    """Make the runs that are not there yet, and return an exit code."""
    if options.jobs < 1:
        raise InputError(f"--jobs: got {options.jobs}, expected at least 1")
    if options.seeds and min(options.seeds) < 0:
        raise InputError(f"--seeds: got {min(options.seeds)}, expected numbers from 0")
    sources = options.data or _DATA
    _check_names(sources)
    models = read_models(options.models, options.only)
    ready, missing = find_ready(models, pythons_of(options.python))
    for model, why in missing:
        print(f"{model.name} is left out: {why} (--python {model.kind}=PATH names another)")
    columns = options.smiles_column, options.target_column, options.splits_file
    data = [load_dataset(source, *columns) for source in sources]
    for dataset in data:
        if left_out := len(dataset.smiles) - len(dataset.usable):
            print(f"{dataset.name}: {left_out} rows without a molecule or a label are left out")
    seeds = options.seeds or _SEEDS
    runs = list(runs_to_do(ready, data, options.splits, seeds, options.part))
    left = without_done(runs, results)
    print(f"{len(runs)} runs, {len(runs) - len(left)} of them in {results.path}", flush=True)
    return _execute(left, results, options)


def _check_names(sources: Iterable[str]) -> None:
    known: dict[str, str] = {}
    for source in sources:
        name = dataset_name(source)
        if name in known:
            raise InputError(
                f"--data: got {known[name]} and {source}, expected one of them, as both are called "
                f"{quoted(name)} in the results; rename the other"
            )
        known[name] = source


def _execute(runs: Sequence[Run], results: Results, options: argparse.Namespace) -> int:
    failed, left = 0, len(runs)

    def once(run: Run) -> list[Result]:
        if not without_done([run], results):
            return []
        rows = run.execute(commands, options.keep)
        if rows:
            results.add(rows)
        return rows

    pool = ThreadPoolExecutor(options.jobs)
    try:
        with Commands() as commands:
            futures = {pool.submit(once, run): run for run in runs}
            for future in _ended(futures):
                left -= 1
                error = future.exception()
                if isinstance(error, StoppedError | KeyboardInterrupt):
                    raise KeyboardInterrupt
                failed += error is not None
                if error is not None and not isinstance(error, CommandError | OSError):
                    raise error
                text = _outcome(future.result()) if error is None else f"{error}"
                print(f"{futures[future].key}: {text}; {left} left", flush=True)
    except KeyboardInterrupt:
        print("stopped; what has ended is kept, the same command goes on", file=sys.stderr)
        return 130
    finally:
        pool.shutdown(cancel_futures=True)
    return 1 if failed else 0


def _ended(futures: Iterable[Future[list[Result]]]) -> Iterator[Future[list[Result]]]:
    """Yield what has ended; Ctrl-C is heard even where another thread took the signal."""
    left = set(futures)
    while left:
        done, left = wait(left, timeout=_SECONDS_OF_DEAFNESS, return_when=FIRST_COMPLETED)
        yield from done


def _outcome(rows: Sequence[Result]) -> str:
    main = next((row for row in rows if row.metric in main_scores(row.data)), None)
    if main is None:
        return "another process has done it" if not rows else "no score is defined"
    return f"{SCORES[main.metric].heading} {main.value:.3f}, {main.cpu_seconds:.0f} s of CPU"


def show(options: argparse.Namespace, results: Results) -> None:
    """Print the tables of what is asked for, and write them."""
    chosen = {
        "data": [dataset_name(source) for source in options.data or ()],
        "split": options.splits or (),
        "seed": options.seeds or (),
        "model": options.only or (),
        "part": (options.part,),
    }
    text = report(select(results.read(), chosen), options.reference, options.metric)
    print(f"\n{text}")
    if options.markdown:
        options.markdown.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
