import json
from importlib import import_module
from inspect import ismodule
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from molattn import MolAttn, train
from molattn.data.table import bundled_dataset
from molattn.errors import InputError
from molattn.evaluation.report.tables import format_score
from molattn.model.networks import Networks

QUICK = {"width": 8, "heads": 2, "layers": 1, "epochs": 2, "device": "cpu", "bootstrap": 0}
FRAME = pd.DataFrame(
    {"molecule": ["C" * n + end for n in range(1, 11) for end in "ON"], "y": np.arange(20) / 7}
)


@pytest.fixture(scope="module")
def trained():
    frame = FRAME.assign(molecule=[FRAME["molecule"][0], None, "C(", *FRAME["molecule"][3:]])
    return train(frame, "y", smiles_column="molecule", **QUICK)


def test_scores_and_skipped_rows_are_shown(trained):
    assert trained.scores["y"]["rmse"] > 0.0
    text = str(trained)
    for words in (
        format_score(trained.scores["y"]["rmse"]),
        "random forest",
        "skipped rows: 2",
        "row 2",
    ):
        assert words in text
    assert "18 rows" in repr(trained)
    assert len(repr(trained)) < 500


class OverflowingNetworks(Networks):
    """Networks without a finite prediction for molecules of seven atoms."""

    def predict(self, records, *arguments, **options):
        outputs, inputs = super().predict(records, *arguments, **options)
        outputs[:, [record.num_atoms == 7 for record in records]] = np.nan
        return outputs, inputs


class Overflowing(MolAttn):
    @property
    def networks(self):
        return OverflowingNetworks(self.config, self.nets, self.scaling)


def test_rows_without_a_finite_prediction_are_not_scored():
    split = ["train"] * 26 + ["val", "test"] * 7
    columns = {"smiles": ["C" * n for n in range(40, 0, -1)], "split": split}
    frame = pd.DataFrame({**columns, "y": np.arange(40) / 7, "c": np.arange(40) // 2 % 2})
    frame.loc[frame["smiles"].isin(["C" * 7]), "split"] = "val"
    options = {"split_column": "split", "predictor": "network", "baselines": False, **QUICK}
    scores = train(frame, ["y", "c"], make_model=Overflowing, **options).run_scores
    count = (frame["split"] == "val").sum() - 1
    assert [task["count"] for task in scores.metrics.scores["validation"].tasks.values()] == [
        count
    ] * 2


def test_scores_of_a_split_by_time_show_a_drift():
    rows = pd.read_csv(bundled_dataset())[::3]
    year = np.random.default_rng(0).permutation(len(rows)) * 30 // len(rows) + 1990
    frame = rows[["smiles"]].assign(year=year, y=rows["logS"] + 0.2 * (year - 2000))
    options = {"predictor": "gaussian_process", "kernels": ["morgan"], "init_from": "none"}
    errors = {}
    for split in ({"split": "random"}, {"split": "time", "time_column": "year"}):
        run = train(frame, "y", baselines=False, bootstrap=0, device="cpu", **options, **split)
        errors[split["split"]] = run.scores["y"]["rmse"]
    assert errors["time"] > 1.2 * errors["random"]


def test_the_folder_is_that_of_a_run(trained, tmp_path):
    trained.save(tmp_path / "run")
    with pytest.raises(InputError):
        trained.save(tmp_path / "run")
    trained.save(tmp_path / "run", overwrite=True)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["test"] == trained.scores
    assert f"<td>{format_score(trained.scores['y']['rmse'])}</td>" in trained._repr_html_()
    model = MolAttn.from_pretrained(tmp_path / "run" / "model")
    np.testing.assert_array_equal(model.predict(["CCO"]), trained.model.predict(["CCO"]))
    unfinished = tmp_path / "other.unfinished"
    unfinished.mkdir()
    for name in ("config.yaml", "checkpoint.safetensors"):
        (unfinished / name).touch()
    with pytest.raises(InputError):
        trained.save(tmp_path / "other")
    assert (unfinished / "checkpoint.safetensors").exists()


@pytest.mark.parametrize(
    "options", [{"epoch": 3}, {"epochs": 0}, {"test_size": 2}, {"folds": 3}, {"layer": "foo"}]
)
def test_an_error_names_the_option(options):
    with pytest.raises(InputError) as error:
        train(FRAME, "y", **{"smiles_column": "molecule", **QUICK, **options})
    assert error.value.option == next(iter(options))
    with pytest.raises(InputError, match="'smiles'"):
        train(FRAME[["y"]], "y", **QUICK)


def test_without_test_rows_there_are_no_scores(tmp_path):
    texts = [f"{'C' * n}(=O)O" for n in range(2, 13)]
    texts += [f"{'C' * n}(=O)[O-].[Na+]" for n in range(2, 8)]
    texts += [f"{'C' * n}(=O)O[Na]" for n in range(8, 11)]
    frame = pd.DataFrame({"smiles": texts, "y": np.arange(20) / 7})
    result = train(frame, "y", test_size=0, standardize=True, **QUICK)
    assert result.scores == {}
    assert "validation scores" in str(result)
    result.save(tmp_path / "run")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["rows_standardized"] == 9
    assert metrics["rows_redrawn"] == result.run.table.redrawn == 3
    acid, salt = MolAttn.from_pretrained(tmp_path / "run").predict(["CC(=O)O", "CC(=O)[O-].[Na+]"])
    assert acid == pytest.approx(salt, rel=1e-6)


class Epochs(Callback):
    """Counts epochs with a validation loss, and ends the training after the third."""

    count = 0

    def on_validation_end(self, trainer, pl_module):
        self.count += 1
        trainer.should_stop = self.count == 3


def test_callbacks_and_loggers_of_lightning_are_passed_on(tmp_path):
    epochs = Epochs()
    checkpoint = ModelCheckpoint(tmp_path / "checkpoints")
    options = {"predictor": "network", "baselines": False, "smiles_column": "molecule"}
    logger = CSVLogger(tmp_path, name="log")
    options |= QUICK | {"epochs": 9, "callbacks": [epochs, checkpoint], "logger": logger}
    run = train(FRAME, "y", **options).run
    assert epochs.count == len(run.histories[0].curve) == 3
    assert Path(checkpoint.best_model_path).parent == tmp_path / "checkpoints"
    logged = pd.read_csv(f"{logger.log_dir}/metrics.csv")
    losses = [epoch.validation_loss for epoch in run.histories[0].curve]
    np.testing.assert_allclose(logged["validation_loss"].dropna(), losses, rtol=1e-5)
    losses = [epoch.train_loss for epoch in run.histories[0].curve]
    np.testing.assert_allclose(logged["train_loss"].dropna(), losses, rtol=1e-5)


def test_each_member_of_an_ensemble_has_copies_of_the_callbacks():
    epochs = Epochs()
    options = {"predictor": "network", "baselines": False, "smiles_column": "molecule"}
    options |= QUICK | {"epochs": 9, "callbacks": [epochs], "ensemble": 2}
    run = train(FRAME, "y", **options).run
    assert [len(history.curve) for history in run.histories] == [3, 3]
    assert epochs.count == 0


MODULES = ("", ".nn", ".nn.functional", ".graph", ".chem", ".explain", ".config", ".evaluation")


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_shown_in_short(module):
    found = import_module(f"molattn{module}")
    names = [name for name in getattr(found, "__all__", dir(found)) if name[0] != "_"]
    assert {name for name in names if len(repr(getattr(found, name))) > 1000} == set()


@pytest.mark.parametrize("module", ["nn", "graph"])
def test_a_star_import_binds_public_names_and_no_modules(module):
    package, bound = import_module(f"molattn.{module}"), {}
    exec(f"from molattn.{module} import *", bound)
    del bound["__builtins__"]
    public = {name for name, value in vars(package).items() if name[0] != "_"}
    assert bound.keys() == {name for name in public if not ismodule(getattr(package, name))}
