import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from molattn import MolAttn
from molattn.config import TrainConfig
from molattn.data.table import bundled_dataset
from molattn.evaluation.report.run_files import write_run
from molattn.evaluation.scores.scoring import score_run
from molattn.training.run import train

OPTIONS = {
    **{"init_from": "none", "device": "cpu", "baselines": False, "bootstrap": 0},
    **{"predictor": "gaussian_process", "kernels": ("morgan", "atom_pairs"), "descriptors": "none"},
    **{"target_columns": "y", "auxiliary_columns": ("a", "soluble"), "split_column": "split"},
}
NEW = ["CCO", "c1ccccc1N", "CC(=O)OC"]


@pytest.fixture(scope="module")
def frame():
    """A target with 60 noisy labels; two auxiliary columns know 140 other molecules."""
    table = pd.read_csv(bundled_dataset()).iloc[:200].reset_index(drop=True)[["smiles", "logS"]]
    table["y"] = np.where(np.arange(200) % 10 < 3, table["logS"], np.nan)
    table["a"] = 2.0 - table["logS"] * 5.0
    table["soluble"] = np.where(table["logS"] > -2, "yes", "no")
    split = np.resize([*["train"] * 20, *["val", "test"] * 5], 200)
    table["split"] = np.where(table["y"].notna(), split, "")
    return table


def trained(frame, console=None, **options):
    return train(TrainConfig.from_options("", {**OPTIONS, **options}), console, frame=frame)


def process(run):
    assert run.model.gaussian_process is not None
    return run.model.gaussian_process


def predicted(run):
    return run.model.predict(NEW)


def test_auxiliary_labels_improve_the_target_alone(frame, tmp_path):
    shown = io.StringIO()
    run = trained(frame, Console(file=shown, width=200))
    alone = trained(frame, auxiliary_columns=())
    scores = [score_run(one).metrics.scores["test"].tasks["y"]["rmse"] for one in (run, alone)]
    assert scores[0] < 0.9 * scores[1]
    assert "'y': the Gaussian process learns from 'a'" in shown.getvalue()
    assert run.model.config.targets == ("y",)
    assert len(process(run).rows) == 194  # without those of the test
    run.model.save_pretrained(tmp_path / "model")
    again = MolAttn.from_pretrained(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(NEW), predicted(run))
    assert {near.row for near in again.neighbors(NEW, 194)["y"][0]} == {*process(run).rows}


def test_labels_of_molecules_that_are_held_out_do_not_count(frame):
    run, is_known, changed = trained(frame), frame["y"].notna(), frame.copy()
    changed.loc[is_known & (frame["split"] == "test"), ["a", "soluble"]] = -40.0, "no"
    np.testing.assert_array_equal(predicted(trained(changed)), predicted(run))
    changed = frame.copy()
    changed.loc[is_known & (frame["split"] == "val"), "a"] += 1.0
    other = trained(changed)
    np.testing.assert_allclose(other.validation_outputs, run.validation_outputs, rtol=1e-7)
    assert np.abs(predicted(other) - predicted(run)).max() > 1e-6


def test_a_second_table_is_the_same_as_rows_of_the_first(frame, tmp_path):
    """A molecule of both has its labels of both, whatever the order of atoms."""
    frame.drop(columns=["y", "split"]).to_csv(tmp_path / "more.csv", index=False)
    table = frame[frame["y"].notna()][["smiles", "y", "split"]]
    found = trained(table, auxiliary_data=str(tmp_path / "more.csv"))
    np.testing.assert_allclose(predicted(found), predicted(trained(frame)), rtol=1e-3)
    rows = process(found).rows
    assert (rows == -1).sum() == 140
    # These are no neighbors that a user could look up.
    near = found.model.neighbors(NEW, len(rows) - 140)["y"][0]
    assert {one.row for one in near} == {*rows} - {-1}


def test_a_report_tells_that_predictions_are_off_on_average(frame, tmp_path):
    table = frame.copy()
    tested = table.index[table["y"].notna()][::4]
    table.loc[tested, "split"] = "test"
    table.loc[tested, "y"] += 5.0
    for columns in ((), ("a",)):
        run = trained(table, auxiliary_columns=columns)
        write_run(run, score_run(run), tmp_path)
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert ("predictions are off by -" in page) == bool(columns)


def test_columns_and_networks_beside_it(frame):
    table = frame.assign(temperature=20.0 + np.arange(200) % 5, weight=1.0 + np.arange(200) % 2)
    tiny = {"width": 8, "heads": 2, "layers": 1, "edge_width": 4, "epochs": 1, "batch_size": 64}
    columns = {"feature_columns": ("temperature",), "weight_column": "weight"}
    run = trained(table, predictor="both", **columns, **tiny)
    assert 0.0 < process(run).shares[0] < 1.0
    assert np.isfinite(run.model.predict(NEW, features=[[20.0], [21.0], [22.0]])).all()
