import json

import numpy as np
import pandas as pd
import pytest

from molattn import MolAttn, train
from molattn.errors import InputError

QUICK = {"width": 8, "heads": 2, "layers": 1, "epochs": 2, "device": "cpu", "bootstrap": 0}
FRAME = pd.DataFrame(
    {"molecule": ["C" * n + end for n in range(1, 11) for end in "ON"], "y": np.arange(20) / 7}
)


@pytest.fixture(scope="module")
def trained():
    return train(FRAME, "y", smiles_column="molecule", **QUICK)


def test_a_frame_trains_as_its_file_does(trained, tmp_path):
    FRAME.to_csv(tmp_path / "table.csv", index=False)
    other = train(tmp_path / "table.csv", ["y"], smiles_column="molecule", **QUICK)
    np.testing.assert_array_equal(trained.model.predict(["CCO"]), other.model.predict(["CCO"]))
    assert trained.scores == other.scores


def test_scores_are_told(trained):
    assert trained.scores["y"]["rmse"] > 0.0
    assert f"{trained.scores['y']['rmse']:.3f}" in str(trained)
    assert "random forest" in str(trained)


class Overflowing(MolAttn):
    """A model without a finite prediction for molecules of seven atoms."""

    def network_outputs(self, records, *arguments, **options):
        outputs, inputs = super().network_outputs(records, *arguments, **options)
        outputs[:, [record.num_atoms == 7 for record in records]] = np.nan
        return outputs, inputs


def test_rows_without_a_finite_prediction_are_not_scored():
    part = ["train"] * 26 + ["val", "test"] * 7
    names = {"smiles": ["C" * n for n in range(40, 0, -1)], "part": part}
    frame = pd.DataFrame({**names, "y": np.arange(40) / 7, "c": np.arange(40) // 2 % 2})
    frame.loc[frame["smiles"].isin(["C" * 7]), "part"] = "val"
    options = {"split_column": "part", "predictor": "network", "baselines": False, **QUICK}
    scores = train(frame, ["y", "c"], make_model=Overflowing, **options).run_scores
    assert [one["count"] for one in scores.validation.tasks.values()] == [
        (frame["part"] == "val").sum() - 1
    ] * 2
    assert scores.not_finite == 0


def test_skipped_rows_are_told(trained):
    assert "skipped" not in str(trained)
    frame = FRAME.assign(molecule=[FRAME["molecule"][0], None, "C(", *FRAME["molecule"][3:]])
    result = train(frame, "y", smiles_column="molecule", **QUICK)
    assert "skipped rows: 2; the first: row 2: the value is missing" in str(result)


def test_the_folder_is_that_of_a_run(trained, tmp_path):
    trained.save(tmp_path / "run")
    with pytest.raises(InputError, match="use overwrite to replace it, or another folder"):
        trained.save(tmp_path / "run")
    trained.save(tmp_path / "run", overwrite=True)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["test"] == trained.scores
    model = MolAttn.from_pretrained(tmp_path / "run" / "model")
    np.testing.assert_array_equal(model.predict(["CCO"]), trained.model.predict(["CCO"]))
    assert metrics["rows_standardized"] is None
    assert "file" not in (tmp_path / "run" / "config.yaml").read_text().splitlines()[0]


def test_an_unfinished_run_of_that_name_is_not_lost(trained, tmp_path):
    unfinished = tmp_path / "run.unfinished"
    unfinished.mkdir()
    for name in ("config.yaml", "checkpoint.safetensors"):
        (unfinished / name).touch()
    words = "contains an unfinished run; resume .* continues it, overwrite replaces it"
    with pytest.raises(InputError, match=words):
        trained.save(tmp_path / "run")
    assert (unfinished / "checkpoint.safetensors").exists()


@pytest.mark.parametrize(
    "options,words",
    [
        ({"epoch": 3}, "unknown option 'epoch', did you mean 'epochs'"),
        ({"epochs": 0}, "^epochs: got 0"),
        ({"split": "foo"}, "^split: got 'foo'"),
        ({"test_size": 2}, "^test_size: got 2"),
        ({"smiles_column": "smiles"}, "DataFrame: no column 'smiles'"),
        ({"folds": 3}, "folds"),
    ],
)
def test_what_is_wrong_is_named(options, words):
    with pytest.raises(InputError, match=words):
        train(FRAME, "y", **{"smiles_column": "molecule", **QUICK, **options})


def test_without_test_rows_there_are_no_scores(tmp_path):
    result = train(FRAME, "y", smiles_column="molecule", test_size=0, **QUICK)
    assert result.scores == {}
    assert "validation scores" in str(result)
    assert len(result.run.parts.train) + len(result.run.parts.val) == len(FRAME)
    result.save(tmp_path / "run")
    model = MolAttn.from_pretrained(tmp_path / "run" / "model")
    np.testing.assert_array_equal(model.predict(["CCO"]), result.model.predict(["CCO"]))


def test_standardized_molecules_are_said_and_kept_with_the_model(tmp_path, capsys):
    texts = [f"{'C' * n}(=O)O" for n in range(2, 13)] + [
        f"{'C' * n}(=O)[O-].[Na+]" for n in range(2, 11)
    ]
    frame = pd.DataFrame({"smiles": texts, "y": np.arange(20) / 7})
    run = train(frame, "y", standardize=True, verbose=True, split="random", **QUICK)
    printed = capsys.readouterr().out
    assert "standardized: the molecules of 9 of 20 rows changed" in printed
    assert "duplicates: 9 molecules occur in more than one row, 9 with conflicting" in printed
    run.save(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["rows_standardized"] == 9
    page = (tmp_path / "run" / "report.html").read_text()
    assert "This changed those of 9 rows." in page
    rows = pd.read_csv(tmp_path / "run" / "predictions.csv", keep_default_na=False)
    assert len(rows)
    for text, form in zip(rows["smiles"], rows["standardized_smiles"], strict=True):
        assert form == (text.replace("[O-].[Na+]", "O") if "Na" in text else "")
    model = MolAttn.from_pretrained(tmp_path / "run")
    assert model.config.standardize
    acid, salt = model.predict(["CC(=O)O", "CC(=O)[O-].[Na+]"])
    assert acid == pytest.approx(salt, rel=1e-6)
