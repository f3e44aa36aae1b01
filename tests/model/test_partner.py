"""Two molecules in, one prediction out."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from molattn.config import DataConfig, NetworkConfig, PredictConfig, SupervisedConfig, TrainConfig
from molattn.errors import InputError, SmilesError
from molattn.inference.predict import predict_table
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.training.run import train

SMALL = NetworkConfig(width=16, heads=2, layers=1, edge_width=4, dropout=0.0)
QUICK = SupervisedConfig(epochs=30, batch_size=8, device="cpu", learning_rate=0.01)
DATA = DataConfig(
    target_columns=("y",), split_column="split", partner_column="solvent", descriptors="all"
)
SOLVENTS = {"O": 2.0, "CCCCCC": -2.0}


def config(path, **data):
    """Six chains in two solvents; the answer is the chain's length times the solvent's number."""
    rows = []
    for place, atoms in enumerate((2, 3, 4, 5, 6, 7, 8, 9)):
        part = "train" if place % 4 else ("val" if place else "test")
        for solvent, number in SOLVENTS.items():
            rows.append(f"{'C' * atoms}O,{solvent},{number * atoms},{part}")
    rows.append("CCO,not a solvent,1,train")
    rows.append("CCO,,1,train")
    path.write_text("smiles,solvent,y,split\n" + "\n".join(rows) + "\n")
    return TrainConfig(str(path), replace(DATA, **data), SMALL, QUICK)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(config(tmp_path_factory.mktemp("partner") / "t.csv"))


def test_the_second_molecule_decides(run, tmp_path):
    prediction = run.model.predict(["CCCCCO", "CCCCCO"], partners=list(SOLVENTS))[:, 0]
    assert prediction[0] > 5.0
    assert prediction[1] < -5.0
    # The first molecule matters as well.
    shorter = run.model.predict(["CCCO", "CCCO"], partners=list(SOLVENTS))[:, 0]
    assert shorter[0] < prediction[0]
    assert shorter[1] > prediction[1]


def test_rows_without_a_second_molecule_are_skipped_with_a_reason(run):
    codes = [row.code for row in run.table.skipped]
    assert codes == ["partner_name", "partner_empty"]
    assert "'not a solvent'" in run.table.skipped[0].reason
    assert run.table.rows_in == len(run.table.rows) + 2
    assert len({id(record.partner) for record in run.table.records}) == len(SOLVENTS)


def test_a_loaded_model_predicts_the_same_and_every_row_comes_out(run, tmp_path):
    run.model.save_pretrained(tmp_path / "model")
    model = MolAttn.from_pretrained(tmp_path / "model")
    pairs = [("CCO", "O"), ("CCCC", "CCO"), ("C", "C")]
    smiles, partners = zip(*pairs, strict=True)
    expected = run.model.predict(smiles, partners=partners)
    np.testing.assert_array_equal(model.predict(smiles, partners=partners), expected)
    source, output = tmp_path / "in.csv", tmp_path / "out.csv"
    lines = [*map(",".join, pairs), "CCO,=cmd()", "nonsense,O", "CCO,"]
    source.write_text("smiles,solvent\n" + "\n".join(lines) + "\n")
    assert predict_table(tmp_path / "model", source, output).counts == (3, 3)
    with open(output) as file:
        rows = list(csv.DictReader(file))
    found = [float(row["y_predicted"]) for row in rows[:3]]
    np.testing.assert_allclose(found, expected[:, 0], rtol=1e-4, atol=1e-5)
    assert [row["error"].startswith("partner_") for row in rows[3:]] == [True, False, True]
    assert rows[3]["solvent"] == "'=cmd()"
    renamed = tmp_path / "renamed.csv"
    renamed.write_text(source.read_text().replace("solvent", "medium"))
    with pytest.raises(InputError, match="no column 'solvent'"):
        predict_table(tmp_path / "model", renamed, output)
    asked = PredictConfig(partner_column="medium", batch_size=2)
    assert predict_table(tmp_path / "model", renamed, output, asked).counts == (3, 3)


def test_a_pair_is_predicted_the_same_in_any_batch_and_order_of_atoms(run):
    model = run.model.double()
    smiles, partners = ["CCCO", "C", "c1ccccc1CCN", "CCCO"], ["CCO", "C", "O", "O"]
    together = model.predict(smiles, partners=partners)
    alone = [model.predict([s], partners=[p])[0] for s, p in zip(smiles, partners, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-5)
    other = ["OCCC", "C", "NCCc1ccccc1", "C(O)CC"], ["OCC", "C", "O", "O"]
    np.testing.assert_allclose(model.predict(other[0], partners=other[1]), together, atol=1e-5)
    model.float()


def test_partners_that_do_not_fit_are_refused():
    one, two = (
        MolAttn(MolAttnConfig("y", SMALL)),
        MolAttn(MolAttnConfig("y", SMALL, partner_column="solvent")),
    )
    with pytest.raises(ValueError, match="partners: the model needs a second molecule"):
        two.predict(["C"])
    with pytest.raises(ValueError, match="partners: the model takes no second"):
        one.predict(["C"], partners=["C"])
    with pytest.raises(ValueError, match="shorter"):
        two.predict(["C", "C"], partners=["C"])
    with pytest.raises(TypeError, match="partners: got one molecule"):
        two.predict(["C", "C"], partners="CC")
    with pytest.raises(SmilesError, match=r"its partner, 'xx': .*\(position 1\) \[partner_"):
        two.predict(["C", "C"], partners=["C", "xx"])
    with pytest.raises(ValueError, match="second molecules"):
        two.values(two.predict_outputs([one.featurize("C")]))
    with pytest.raises(ValueError, match="no second molecules"):
        one.values(one.predict_outputs([two.featurize("C", "O")]))
