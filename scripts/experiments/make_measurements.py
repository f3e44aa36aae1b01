"""Make the tables and charts of the documentation from stored results, in ``experiments``.

A table of a page is between ``<!-- table: NAME -->`` and ``<!-- end -->`` and is replaced there;
charts are written to the folder ``images``. Nothing is measured: the pages name the commands.
"""

import argparse
import csv
import json
import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from molattn import MolAttn
from scripts.accuracy.results import Results
from scripts.accuracy.tables import CaseTable, Summary, case_tables, scores_text
from scripts.benchmarks.benchmarking import markdown_table

_HERE = Path(__file__).resolve().parent
_NAMES = {
    "molattn": "molattn",
    "chemprop": "Chemprop",
    "lightgbm": "LightGBM",
    "attentivefp": "AttentiveFP",
    "maplight": "MapLight",
    "minimol": "MiniMol",
}
_DATA = {"bace": "BACE", "bbbp": "BBBP", "esol": "ESOL", "freesolv": "FreeSolv"}
_DATA |= {"lipo": "Lipophilicity"}
# Distinguishable with color blindness (Okabe and Ito 2008).
_COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#767676"]
_FILES = {
    "accuracy": "MoleculeNet, test rows",
    "potency": "Potency, test rows of folds",
    "admet": "ADMET, test rows of folds",
    "others": "Other datasets, test rows",
    "folds": "Cross-validation outside of the test sets",
    "freesolv": "FreeSolv, further random splits",
    "length": "Epochs and frozen encoders",
}
_STORED = {
    "attention": "Layers on complete graphs",
    "updated_edges": "Updated edges",
    "epoch": "Training epoch",
    "molecule_size": "Batches of molecules of one size",
    "large_molecules": "One large molecule, with and without a radius",
    "precision": "Precision",
    "training": "Training, next to Chemprop",
    "prediction": "Prediction, next to Chemprop",
    "throughput": "Several processes",
    "devices": "Training on two devices, steps per second",
    "serve": "Requests to the server",
    "coverage": "Coverage of intervals",
    "calibration": "Calibration of probabilities",
    "confidence": "Confidence: errors relative to those of a guess, by exp(1 - s)",
    "confidence_similarity": "Confidence by similarity, by exp(1 - s)",
    "confidence_targets": "Confidence by property: error, and number of labels, by exp(1 - s)",
    "confidence_drugs": "Confidence of 22 approved drugs: number of properties",
    "one_or_all": "One model of all ADMET properties, or one of each",
    "descriptors": "Families of descriptors: change of the error of the Gaussian process",
}


def results(name: str, models: Sequence[str] = (), part: str = "test") -> list[CaseTable]:
    """Read the results of some models, by case."""
    rows = Results(_HERE / f"{name}.csv").read()
    return case_tables([r for r in rows if r.part == part and r.model in (models or {r.model})])


def stored(name: str) -> list[dict[str, str]]:
    """Read a stored table."""
    with (_HERE / "tables" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def all_results() -> str:
    """Return everything that is stored, in Markdown."""
    parts = []
    for name, title in _FILES.items():
        part = "validation" if name == "folds" else "test"
        parts += [f"## {title}", f"File `{name}.csv`.", scores_text(results(name, part=part))]
    for name, title in _STORED.items():
        rows = stored(name)
        table = markdown_table([*rows[0]], [[*row.values()] for row in rows])
        parts += [f"## {title}", f"File `tables/{name}.csv`.", table]
    return "\n\n".join(parts)


def compared(name: str, models: Sequence[str]) -> str:
    """Return a table with a row for each case and a column for each model."""
    rows = []
    for case in results(name, models):
        values = {c.model: Summary.of(c.values.values()) for c in case.cells}
        best = max(values, key=lambda model: case.sign * values[model].mean)
        texts = {model: f"{one.mean:.3f} ± {one.sd:.3f}" for model, one in values.items()}
        texts[best] = f"**{texts[best]}**"
        rows.append([_case(case), case.heading, *(texts[model] for model in models)])
    return markdown_table(["Data", "Score", *(_NAMES[model] for model in models)], rows)


def _case(case: CaseTable) -> str:
    return f"{_DATA[case.data]}, {case.split}" if case.data in _DATA else case.data


def layers_table() -> str:
    """Return the time and memory of the layers for molecules of Lipophilicity."""
    rows = [row for row in stored("attention") if row["data"] == "Lipophilicity"]
    columns = ["layer", "forward + backward, ms", "speed, both", "saved, MB"]
    return markdown_table(columns, [[row[name] for name in columns] for row in rows])


def prediction_table() -> str:
    """Return the speed of predictions next to Chemprop."""
    rows = [row for row in stored("prediction") if row["processor"] == "AMD EPYC"]
    columns = [name for name in rows[0] if name != "processor"]
    return markdown_table(columns, [[row[name] for name in columns] for row in rows])


def relative_errors(name: str, models: Sequence[str]) -> tuple[list[str], dict[str, list[float]]]:
    """Return the cases of results, and the error of each model in units of that of molattn."""
    path = _HERE.parents[1] / "datasets" / "admet" / "endpoints.json"
    endpoints = json.loads(path.read_text(encoding="utf-8"))
    cases, errors = [], {model: [] for model in models}
    for case in results(name, ["molattn", *models]):
        own, *others = (_error(case, model) for model in ["molattn", *models])
        title = endpoints[case.data]["title"] if case.data in endpoints else _case(case)
        cases.append(f"{title} ({case.heading})")
        for model, error in zip(models, others, strict=True):
            errors[model].append(error / own)
    return cases, errors


def _error(case: CaseTable, model: str) -> float:
    """An RMSE or MAE, or what another score lacks to 1."""
    (cell,) = (cell for cell in case.cells if cell.model == model)
    mean = statistics.fmean(cell.values.values())
    return 1 - mean if case.sign > 0 else mean


def errors_chart(name: str, models: Sequence[str]) -> Figure:
    """Draw the errors of other models relative to that of molattn."""
    cases, errors = relative_errors(name, models)
    figure = Figure(figsize=(7, 1.2 + 0.22 * len(cases)), layout="constrained")
    axis = figure.subplots()
    for (model, values), color in zip(errors.items(), _COLORS[1:], strict=False):
        axis.plot(values, range(len(cases)), "o", color=color, label=_NAMES[model])
    axis.axvline(1, color=_COLORS[0], label="molattn")
    axis.set_yticks(range(len(cases)), cases)
    axis.invert_yaxis()
    axis.set_xlabel("error relative to molattn (to the right: larger)")
    axis.grid(axis="y", linewidth=0.3)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=5)
    return figure


def accuracy_chart() -> Figure:
    """Draw the comparison on MoleculeNet."""
    return errors_chart("accuracy", ["chemprop", "lightgbm", "attentivefp"])


def admet_chart() -> Figure:
    """Draw the comparison on the tasks of TDC."""
    return errors_chart("admet", ["maplight", "minimol"])


def attention_chart() -> Figure:
    """Draw the time of the layers."""
    figure = Figure(figsize=(8, 3), layout="constrained")
    for axis, data in zip(figure.subplots(1, 2), ["Lipophilicity", "ESOL"], strict=True):
        rows = [row for row in stored("attention") if row["data"] == data][::-1]
        color = [_COLORS[0 if row["layer"].startswith("molattn") else -1] for row in rows]
        times = [float(row["forward + backward, ms"]) for row in rows]
        axis.barh(range(len(rows)), times, color=color)
        axis.set_yticks(range(len(rows)), [row["layer"] for row in rows])
        axis.set_title(data)
        axis.label_outer()
    figure.supxlabel("forward and backward pass of 64 molecules (ms)")
    return figure


def size_chart() -> Figure:
    """Draw how time grows with the size of molecules."""
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    _lines(left, "molecule_size", {"TransformerConv, ms": -1, "molattn, ms": 0})
    left.set_ylabel("eight molecules (ms)")
    _lines(right, "large_molecules", {"CPU s": 0, "radius 8: CPU s": 1})
    right.set_ylabel("one molecule (CPU s)")
    return figure


def _lines(axis: Axes, name: str, columns: dict[str, int]) -> None:
    rows = stored(name)
    atoms = [int(row["atoms"]) for row in rows]
    for column, color in columns.items():
        label = {"CPU s": "all pairs"}.get(column, re.sub(r", ms|: CPU s", "", column))
        values = [float(row[column]) for row in rows]
        axis.loglog(atoms, values, "o-", color=_COLORS[color], label=label)
    axis.set_xticks(atoms, map(str, atoms))
    axis.minorticks_off()
    axis.set_xlabel("atoms")
    axis.legend()


def coverage_chart() -> Figure:
    """Draw the coverage of intervals, and the calibration of probabilities."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    levels = {"at 0.5": 0.5, "at 0.8": 0.8, "coverage": 0.9, "at 0.95": 0.95}
    rows = stored("coverage")
    for name, color in zip(["FreeSolv", "ESOL", "Lipophilicity"], _COLORS, strict=False):
        points = [(p, float(r[c])) for r in rows if r["dataset"] == name for c, p in levels.items()]
        left.plot(*zip(*points, strict=True), "o", color=color, label=name, alpha=0.7)
    left.plot([0.4, 1], [0.4, 1], color=_COLORS[-1], linewidth=1)
    left.set_xlabel("level of the interval")
    left.set_ylabel("test labels inside")
    left.legend()
    rows = stored("calibration")
    for shift, column in ((-0.2, "ECE before"), (0.2, "ECE after")):
        places = [place + shift for place in range(len(rows))]
        color = _COLORS[-1 if shift < 0 else 0]
        values = [float(row[column]) for row in rows]
        right.bar(places, values, 0.4, color=color, label=f"{column[4:]} calibration")
    right.set_xticks(range(len(rows)), [f"{row['dataset']}\n{row['split']}" for row in rows])
    right.set_ylabel("expected calibration error")
    right.set_ylim(0, 0.12)
    right.legend()
    return figure


_FORMS = {
    "": "",
    "parent": "the parent is learned and predicted",
    "written": "as written, in training and prediction; of a salt also the parent is predicted",
}


def endpoints_table() -> str:
    """Return the properties of the packaged model, each with one of its scores."""
    rows = []
    for name, one in MolAttn.from_pretrained("admet").endpoints.items():
        score = next(s for s in one.scores.split(", ") if s.startswith(("MAE", "ROC-AUC")))
        coverage = "" if one.coverage is None else f"{one.coverage:.2f}"
        unit = one.unit.removeprefix("probability of ").removeprefix("being ")
        rows.append([one.title, f"`{name}`", unit, f"{one.rows:,}", score, coverage])
    header = ["Property", "Column", "Unit or class 1", "Labels", "Score", "Coverage"]
    return markdown_table(header, rows)


def endpoint_sections() -> str:
    """Return what the packaged model says of each property, in Markdown."""
    parts = []
    for name, one in MolAttn.from_pretrained("admet").endpoints.items():
        limits = "; ".join(map(str, one.thresholds))
        facts = {
            "Column": f"`{name}`",
            "Category": one.category,
            "Measured by": one.assay,
            "Not in the data": one.limitations,
            "Unit": one.unit,
            "Molecule": _FORMS[one.form],
            "Wanted": one.direction,
            "Thresholds": limits,
            "Scores": one.scores,
            "Source": one.source,
            "License": one.license,
        }
        lines = "\n".join(f"- {title}: {text}" for title, text in facts.items() if text)
        parts.append(f"### {one.title}\n\n{one.description}\n\n{lines}")
    return "\n\n".join(parts)


TABLES: dict[str, Callable[[], str]] = {
    "moleculenet": lambda: compared("accuracy", ["molattn", "chemprop", "lightgbm", "attentivefp"]),
    "endpoints": endpoints_table,
    "layers": layers_table,
    "prediction": prediction_table,
}
CHARTS: dict[str, Callable[[], Figure]] = {
    "accuracy": accuracy_chart,
    "accuracy-admet": admet_chart,
    "speed": attention_chart,
    "speed-size": size_chart,
    "coverage": coverage_chart,
}


def with_tables(page: str) -> str:
    """Return a page with its tables made anew."""
    return re.sub(
        r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}",
        page,
        flags=re.DOTALL,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--docs", type=Path, default=_HERE.parents[1] / "docs", help="folder")
    folder: Path = parser.parse_args(arguments).docs
    for path in sorted(folder.glob("*.md")):
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for name, draw in CHARTS.items():
        draw().savefig(folder / "images" / f"{name}.png", dpi=120, metadata={"Software": None})
        print(f"images/{name}.png")


if __name__ == "__main__":
    main()
