"""Two molecules in, one prediction out."""

import numpy as np
import pytest

from molattn.config import DataConfig, NetworkConfig, PredictConfig, SupervisedConfig, TrainConfig
from molattn.errors import InputError, SmilesError
from molattn.inference.predict import predict_table
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.training.run import train

from ..conftest import rows_of, saved

SMALL = NetworkConfig(width=16, heads=2, layers=1, edge_width=4, dropout=0.0)
QUICK = SupervisedConfig(epochs=30, batch_size=8, device="cpu", learning_rate=0.01)
DATA = DataConfig(
    target_columns=("y",), split_column="split", partner_column="solvent", descriptors="all"
)
SOLVENTS = {"O": 2.0, "CCCCCC": -2.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Chains in two solvents; the answer is the chain's length times the solvent's number."""
    rows = []
    for place, atoms in enumerate((2, 3, 4, 5, 6, 7, 8, 9)):
        part = "train" if place % 4 else ("val" if place else "test")
        for solvent, number in SOLVENTS.items():
            rows.append(f"{'C' * atoms}O,{solvent},{number * atoms},{part}")
    rows.append("CCO,not a solvent,1,train")
    rows.append("CCO,,1,train")
    text = "\n".join(["smiles,solvent,y,split", *rows, ""])
    path = saved(tmp_path_factory.mktemp("partner"), text)
    return train(TrainConfig(str(path), DATA, SMALL, QUICK))


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


def test_the_column_of_second_molecules_has_its_name_or_one_that_is_given(run, tmp_path):
    lines = ["CCO,O", "CCCC,CCO", "CCO,=cmd()", "nonsense,O"]
    source, output = saved(tmp_path, "\n".join(["smiles,medium", *lines, ""])), tmp_path / "out.csv"
    with pytest.raises(InputError, match="no column 'solvent'"):
        predict_table(run.model, source, output)
    asked = PredictConfig(partner_column="medium", batch_size=2)
    assert predict_table(run.model, source, output, asked).counts == (2, 2)
    assert rows_of(output)[2]["medium"] == "'=cmd()"


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
        two.predictor.values(two.predictor.predict_outputs([one.featurize("C")]))
    with pytest.raises(ValueError, match="no second molecules"):
        one.predictor.values(one.predictor.predict_outputs([two.featurize("C", "O")]))
