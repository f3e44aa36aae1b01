import io

import numpy as np
import pytest
from rich.console import Console

from molattn.evaluation.metrics import score_tasks
from molattn.evaluation.score_tables import score_tables
from molattn.evaluation.terminal_tables import _score_table, uncertainty_tables
from molattn.task import Task


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_tables_fit_80_columns(kind):
    task = Task("y") if kind == "regression" else Task("y", "binary", ("n", "y"))
    rng = np.random.default_rng(0)
    prediction, target = rng.random((20, 1)), rng.integers(0, 2, (20, 1)).astype(float)
    scores = score_tasks(prediction, target, [task], resamples=100)
    models = {"test": scores.tasks, "random_forest": scores.tasks, "baseline": scores.tasks}
    (table,) = map(_score_table, score_tables([task], models))
    found = scores.tasks["y"]
    calibrated = {key: found.get(key) for key in ("nll", "brier", "ece")}
    uncertainty = (
        {"count": 20, "coverage": 0.9, "coverage_sd": 0.1, "mean_width": 1.0}
        if kind == "regression"
        else {"count": 20}
        | {f"{key}_before": value for key, value in calibrated.items()}
        | {f"{key}_after": value for key, value in calibrated.items()}
    )
    for one in (table, *uncertainty_tables({"y": uncertainty}, 0.9)):
        console = Console(file=io.StringIO(), width=80)
        console.print(one, markup=False)
        lines = console.file.getvalue().splitlines()
        assert max(map(len, lines)) <= 80
        assert "…" not in "".join(lines)
        assert sum("95% CI" in line for line in lines) == (one is table)
