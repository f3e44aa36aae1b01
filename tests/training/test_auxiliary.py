"""Networks that learn auxiliary columns and do not predict them."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import torch

from molattn.config import DataConfig, GaussianProcessConfig, ReportConfig, TrainConfig
from molattn.data.table import bundled_dataset
from molattn.evaluation.cross_validation import cross_validate
from molattn.evaluation.report.run_files import write_run
from molattn.evaluation.scores.scoring import score_run
from molattn.model.model import MolAttn
from molattn.training.run import train

from ..conftest import rows_of
from .fitting import QUICK, TINY, interrupted

NETWORK = GaussianProcessConfig(predictor="network")
QUIET = ReportConfig(baselines=False, bootstrap=0)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A run on 40 of 200 labels; two auxiliary columns have the others, and test labels as well."""
    path = tmp_path_factory.mktemp("auxiliary") / "in.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", "y", "a", "soluble", "split"])
        for number, row in enumerate(rows_of(bundled_dataset())[:200]):
            split = "test" if number % 20 == 0 else "val" if number % 20 == 5 else "train"
            label, soluble = row["logS"], "yes" if float(row["logS"]) > -2 else "no"
            kept = label if number % 5 == 0 else ""
            writer.writerow([row["smiles"], kept, label, soluble if number % 3 else "", split])
    data = DataConfig(
        **{"target_columns": ("y",), "split_column": "split", "descriptors": "none"},
        auxiliary_columns=("a", "soluble"),
    )
    return TrainConfig(str(path), data, TINY, QUICK, QUIET, gaussian_process=NETWORK)


def plain(config):
    return replace(config, data=replace(config.data, auxiliary_columns=()))


def test_auxiliary_labels_improve_the_target(config):
    network = replace(config.network, norm="layer")  # which needs the further labels more
    config = replace(config, network=network)
    config = replace(config, training=replace(QUICK, epochs=10, learning_rate=0.01))
    auxiliary, alone = (
        score_run(train(options)).metrics.scores["test"].tasks["y"]["rmse"]
        for options in (config, plain(config))
    )
    assert auxiliary < 0.8 * alone


def test_outputs_are_those_of_the_joint_network_for_the_target(config):
    made = []

    def make_model(given):
        made.append(MolAttn(given))
        return made[-1]

    run = train(config, make_model=make_model)
    joint, batch = made[0], made[0].collate(run.table.records[:5])
    assert [one.config.targets for one in made] == [("y", "a", "soluble"), ("y",)]
    with torch.no_grad():
        torch.testing.assert_close(run.model(batch), joint.eval()(batch)[:, :1])
    assert float(run.model.target_mean) == float(joint.target_mean[0])


def test_results_name_the_target_alone(config, tmp_path):
    columns = []
    for one in (plain(config), config):
        run = train(replace(one, gaussian_process=GaussianProcessConfig()))
        scores = score_run(run)
        write_run(run, scores, tmp_path)
        assert [*scores.metrics.scores["test"].tasks] == ["y"]
        assert [len(rows) for rows in run.split] == [20, 10, 10]
        columns.append([*rows_of(tmp_path / "predictions.csv")[0]])
    assert columns[0] == columns[1]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for words in ("auxiliary labels of 10 of 10 test molecules", '<td class="num">180</td>'):
        assert words in page


def test_a_resumed_ensemble_has_the_same_weights(config, tmp_path, monkeypatch):
    config = replace(config, training=replace(QUICK, ensemble=2, checkpoint_steps=1))
    whole = train(config)
    interrupted(monkeypatch, config, tmp_path / "run", 60)
    weights, others = whole.model.state_dict(), train(config, folder=tmp_path / "run").model
    assert all(torch.equal(weights[name], one) for name, one in others.state_dict().items())


def test_folds_with_a_second_table_are_resumed(config, tmp_path, monkeypatch):
    rows = [f"{row['smiles']},{row['logS']}" for row in rows_of(bundled_dataset())[200:240]]
    (tmp_path / "more.csv").write_text("\n".join(["smiles,a", *rows, ""]))
    monkeypatch.chdir(tmp_path)
    data = replace(config.data, folds=2, split_column=None, test_size=0.1)
    config = replace(config, data=replace(data, auxiliary_data="more.csv"))
    first = cross_validate(config, tmp_path)
    monkeypatch.chdir("/")
    (tmp_path / "fold_2" / "metrics.json").unlink()
    again = cross_validate(config, tmp_path)
    assert again.scores["test"] == first.scores["test"]
    assert [fold.leakage.auxiliary_test for fold in again.folds] == [20, 20]
    model = MolAttn.from_pretrained(tmp_path / "model")
    assert model.config.auxiliary_columns == ("a", "soluble")
    assert np.isfinite(model.predict_interval(["CCO"], 0.5)).all()
