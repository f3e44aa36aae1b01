"""Commands that train nothing: ``molattn check``, ``molattn runs`` and ``molattn compare``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from molattn.cli.options import group, make_console, section
from molattn.config import DataConfig, TrainConfig
from molattn.data.table import escape_formula, open_table, write_table
from molattn.utils.console import print_line


def check(
    table: Annotated[Path, Parameter(help="Table of molecules and their properties.")],
    /,
    *,
    output: Annotated[Path | None, group("Output")] = None,
    config: Annotated[DataConfig, section("Data")] = DataConfig(),
) -> None:
    """Report what may be wrong with a table, before a model is trained on it.

    Rows that cannot be used, duplicates and conflicting labels, mixtures, unspecified
    stereochemistry, and the range or the classes of the labels.

    Args:
        output: CSV, TSV, Parquet or Excel file with a row for each problem.
    """
    from molattn.data.labels import with_target

    opened = open_table(table, options=config)
    config = replace(config, target_columns=with_target(opened, config).target_columns)
    from molattn.data.check import Problem, check_table

    report = check_table(opened, config)
    console = make_console()
    if output is not None:
        with write_table(output, Problem._fields) as write:
            for problem in report.problems:
                write([problem.line, *map(escape_formula, problem[1:])])
    for line in report.lines:
        print_line(console, line)
    command = TrainConfig(str(table), report.config).command_line("train", with_paths=True)
    print_line(console, f"to train: {command}")


def compare(
    *runs: Annotated[Path, Parameter(name="RUN")],
    output: Annotated[Path | None, group("Output")] = None,
) -> None:
    """Compare runs that were tested on the same rows, such as those of one split column or seed.

    Shows their scores with confidence intervals, and which differences are more than chance: by
    Tukey's HSD, paired over the folds of cross-validations or over the test molecules of single
    splits (see "Comparing runs" in the documentation).

    Args:
        runs: Folders of two or more finished runs of molattn train.
        output: Folder for report.html (a self-contained page, also with the errors by scaffold and
            by similarity to the training molecules, and the molecules on which the runs disagree)
            and comparison.csv; by default a new one in runs/. An earlier comparison is replaced.
    """
    console = make_console()
    from molattn.evaluation.compare.comparison import comparison_table, read_runs
    from molattn.evaluation.compare.comparison_page import write_comparison
    from molattn.evaluation.report.tables import print_tables
    from molattn.training.run_folder import free_folder

    output = output or free_folder(Path("runs/comparison"))
    read = read_runs(runs)
    for line in (line for run in read.values() for line in run.replaced_lines()):
        print_line(console, line)
    tables = write_comparison(read, comparison_table(read), output)
    for table in tables:
        if "interval" in table.frame:  # a drawing
            del table.frame["interval"]
    print_tables(tables, console)
    print_line(console, f"Comparison written to {output}; see {output / 'report.html'}")


def runs(
    folder: Annotated[Path, Parameter(help="Folder to search, with its subfolders.")] = Path(
        "runs"
    ),
    /,
    *,
    output: Annotated[Path | None, group("Output")] = None,
) -> None:
    """List the runs in a folder, the oldest first, with their scores.

    Args:
        output: CSV, TSV, Parquet or Excel file for the same table.
    """
    console = make_console()
    from rich.table import Table

    from molattn.evaluation.compare.run_list import ListedRun, list_runs
    from molattn.evaluation.report.tables import format_score

    listed_runs = list_runs(folder)
    if output is not None:
        with write_table(output, ListedRun._fields) as write:
            for run in listed_runs:
                texts = (f"{cell:.7g}" if isinstance(cell, float) else cell for cell in run)
                write([escape_formula(str(text or "")) for text in texts])
    printed = Table(box=None, pad_edge=False)
    least = {"date": 10, "score": 16, "baseline": 8, "state": 11}  # the others are cut if need be
    for name in ("name", "date", "data", "target", "split", "score", "baseline", "state"):
        justify = "right" if name in ("score", "baseline") else "left"
        printed.add_column(name, no_wrap=True, justify=justify, min_width=least.get(name))
    for name, date, *facts, metric, score, baseline, state in listed_runs:
        numbers = ["" if number is None else format_score(number) for number in (score, baseline)]
        printed.add_row(name, date[:10], *facts, f"{metric} {numbers[0]}", numbers[1], state)
    console.print(printed if listed_runs else f"no runs in {folder}", markup=False)
