import io

import numpy as np
import pandas as pd
import pytest
from rdkit import Chem
from rdkit.Chem import Descriptors
from rich.console import Console

from molattn import MolAttn
from molattn.config import TrainConfig
from molattn.data.table import bundled_dataset
from molattn.errors import InputError
from molattn.training import gaussian_process
from molattn.training.run import train

TINY = {"width": 8, "heads": 2, "layers": 1, "edge_width": 4, "epochs": 1, "batch_size": 16}
ALONE = {"init_from": "none", "device": "cpu", "baselines": False, "bootstrap": 0}
PROCESS = {"predictor": "gaussian_process", "kernels": ("morgan", "atom_pairs")}
NEW = ["CCO", "c1ccccc1N", "CC(=O)OC"]


@pytest.fixture(scope="module")
def frame():
    table = pd.read_csv(bundled_dataset()).iloc[:60].reset_index(drop=True)[["smiles", "logS"]]
    table["soluble"] = np.where(table["logS"] > -2, "yes", "no")
    table["phase"] = np.resize(["solid", "liquid", "gas"], len(table))
    table["solvent"] = np.resize(["O", "CCO", "ClCCl"], len(table))
    table["temp"] = 20.0 + np.arange(len(table)) % 5
    return table


def trained(frame, targets="logS", console=None, **options):
    common = ALONE if options.get("predictor") == "gaussian_process" else {**TINY, **ALONE}
    options = {**common, "split": "random", "target_columns": targets, **options}
    return train(TrainConfig.from_options("", options), console, frame=frame)


@pytest.fixture(scope="module")
def both(frame):
    return trained(frame, keep_training_molecules=True)


def process_alone(model, smiles):
    """What the Gaussian process predicts on the transformed scale."""
    _, inputs = model.networks.predict([model.featurize(text) for text in smiles])
    return model.scaling.to_transformed(model.gaussian_process.predict(inputs))


def test_the_default_is_the_mean_of_network_and_gaussian_process(frame, both):
    network = trained(frame, predictor="network").model
    assert (network.gaussian_process, network.config.kernels) == (None, ())
    model = both.model
    for name, weights in network.state_dict().items():  # the network is the same
        assert weights.equal(model.state_dict()[name])
    (share,) = model.gaussian_process.shares
    assert 0.0 < share < 1.0
    mean = (1 - share) * network.predict(NEW) + share * process_alone(model, NEW)
    np.testing.assert_allclose(model.predict(NEW), mean, rtol=1e-6, atol=1e-6)
    lines = {
        both.table.rows[row].line for part in (both.split.train, both.split.val) for row in part
    }
    assert {*model.gaussian_process.rows.tolist()} == lines
    smiles = {row.line: both.table.smiles[n] for n, row in enumerate(both.table.rows)}
    kept = model.training_set.molecules
    names = dict(zip(kept.rows.tolist(), kept.smiles, strict=True))
    assert names == {line: smiles[line] for line in lines}


def test_validation_outputs_do_not_depend_on_their_labels(frame, both):
    """The process that predicted them did not learn from them."""
    val = both.split.val
    changed = frame.copy()
    rows = [both.table.rows[row].line - both.table.rows[0].line for row in val]
    changed.loc[rows, "logS"] += 1e-3  # too little for another share
    other = trained(changed, keep_training_molecules=True)
    np.testing.assert_array_equal(other.split.val, val)
    assert other.model.gaussian_process.shares == both.model.gaussian_process.shares
    np.testing.assert_allclose(other.validation_outputs, both.validation_outputs, rtol=1e-6)
    after = both.model.predictor.predict_outputs(both.table.molecules(val).records)
    assert np.abs(after - both.validation_outputs).max() > 1e-3


def test_descriptors_are_compared_if_there_is_evidence(frame):
    options = {"predictor": "gaussian_process", "init_from": "base"}
    kernels = ("morgan", "atom_pairs", "embedding")
    weights = [Descriptors.MolWt(Chem.MolFromSmiles(text)) for text in frame["smiles"]]
    random = np.random.default_rng(0).normal(size=len(frame))
    for labels, expected in ((weights, (*kernels, "descriptors")), (random, kernels)):
        shown = io.StringIO()
        console = Console(file=shown, width=200)
        model = trained(frame.assign(logS=labels), console=console, **options).model
        assert model.config.kernels == expected
        assert {*model.gaussian_process.kernel.numbers} == {*expected} - {"morgan", "atom_pairs"}
        assert "log Bayes factor" in shown.getvalue()
        assert "embeddings of the pretrained model base\n" in shown.getvalue()
    base = MolAttn.from_pretrained("base")
    np.testing.assert_allclose(model.embed(NEW), base.embed(NEW), atol=1e-5)
    np.testing.assert_allclose(model.predict(NEW), process_alone(model, NEW), rtol=1e-9)
    given = (*kernels, "descriptors")  # what is listed is compared in any case
    model = trained(frame.assign(logS=random), kernels=given, **options).model
    assert model.config.kernels == given


@pytest.mark.parametrize(
    "options",
    [
        {"predictor": "both", "ensemble": 2, "inducing_points": 15, "weight_column": "temp"},
        {"predictor": "gaussian_process", "kernels": ("morgan", "feature_morgan")},
    ],
)
def test_all_kinds_of_tasks_second_molecules_and_columns(frame, tmp_path, options):
    table = frame.copy()
    table.loc[::7, "logS"] = np.nan
    table.loc[::5, "phase"] = None
    table.loc[3, "temp"] = 0.0
    columns = {"partner_column": "solvent", "feature_columns": ("temp",)}
    model = trained(table, ("logS", "soluble", "phase"), **columns, **options).model
    inputs = {"partners": ["O", "CCO", "O"], "features": [[20.0], [21.0], [22.0]]}
    found = model.predict(NEW, **inputs)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[:, 2:].sum(axis=1), 1.0)
    model.save_pretrained(tmp_path / "model")
    again = MolAttn.from_pretrained(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(NEW, **inputs), found)
    # The second molecule and the column are in the kernel.
    for other in ({**inputs, "partners": ["ClCCl"] * 3}, {**inputs, "features": [[24.0]] * 3}):
        kernels = []
        for given in (inputs, other):
            records = [model.featurize(*pair) for pair in zip(NEW, given["partners"], strict=True)]
            _, read = model.networks.predict(records, features=given["features"])
            kernels.append(model.gaussian_process.kernel(read))
        assert np.abs(kernels[0] - kernels[1]).max() > 1e-3


def test_joined_models_have_none(frame, both):
    joined = MolAttn.ensemble([both.model, both.model])
    assert (joined.gaussian_process, joined.config.kernels) == (None, ())
    assert both.model.gaussian_process is not None
    with pytest.raises(InputError):
        joined.neighbors(NEW)
    alone = trained(frame, **PROCESS).model
    with pytest.raises(ValueError, match="Gaussian process alone"):
        MolAttn.ensemble([alone, alone])


def test_the_order_of_rows_does_not_change_the_inducing_points(frame):
    table = frame.assign(part=np.resize(["train", "train", "train", "val", "test"], 60))
    shuffled = table.sample(frac=1.0, random_state=5)
    options = {"inducing_points": 15, "keep_training_molecules": True, "split": None, **PROCESS}
    runs = [trained(one, split_column="part", **options) for one in (table, shuffled)]
    smiles = []
    for run in runs:
        kept = run.model.training_set.molecules
        names = dict(zip(kept.rows.tolist(), kept.smiles, strict=True))
        smiles.append([names[row] for row in run.model.gaussian_process.rows.tolist()])
    assert smiles[0] == smiles[1]
    assert len({*smiles[0]}) == 15
    np.testing.assert_allclose(*(run.model.predict(NEW) for run in runs), rtol=1e-4, atol=1e-5)


def test_rows_with_rare_labels_and_many_sets_of_labels_are_learned(frame, both, monkeypatch):
    rng = np.random.default_rng(0)
    many = {f"y{n}": np.where(rng.random(60) < 0.8, rng.normal(size=60), np.nan) for n in range(40)}
    process = trained(frame.assign(**many), [*many], inducing_points=40).model.gaussian_process
    assert 0.9 * 16 * 40**3 < (process.labeled.sum(axis=0) ** 3).sum() <= 16 * 40**3
    assert np.isfinite(process.weights).all()
    monkeypatch.setattr(gaussian_process, "MAX_LEARNED", 10)
    monkeypatch.setattr(gaussian_process, "MAX_HELD_OUT", 3)
    rare = np.full(len(frame), np.nan)
    rows = both.split.train[[3, -3]]
    rare[rows] = 1.0, 2.0
    run = trained(frame.assign(rare=rare), targets=["logS", "rare"])
    np.testing.assert_array_equal(run.split.train, both.split.train)
    assert {run.table.rows[row].line for row in rows} <= {*run.model.gaussian_process.rows.tolist()}
    assert np.isfinite(run.model.predict(NEW)).all()


def test_limits_have_censored_and_measured_labels_as_special_cases(frame):
    labels = frame["logS"].to_numpy()
    kinds = np.arange(len(frame)) % 3  # measured, >, <
    relations = np.array(["", ">", "<"])[kinds]
    written = [f"{sign}{y}" for sign, y in zip(relations, labels, strict=True)]
    options = {**PROCESS, "descriptors": "none", "target_transform": "none"}
    options["interval_columns"] = ("low", "high")

    def predicted(values, low, high, **more):
        table = frame.assign(logS=values, low=low, high=high)
        run = trained(table, **{**options, **more})
        return np.hstack([run.model.predict(NEW), *run.model.predict_interval(NEW, 0.5)])

    expected = predicted(written, np.nan, np.nan, interval_columns=())
    low = np.where(kinds == 2, np.nan, labels)
    high = np.where(kinds == 1, np.nan, labels)
    for values in (np.nan, labels):
        np.testing.assert_array_equal(predicted(values, low, high), expected)
    narrow = predicted(np.nan, low - 1e-7, high + 1e-7)
    np.testing.assert_allclose(narrow, expected, atol=1e-4)
    wide = predicted(np.nan, low - 1.0, high + 2.0)
    assert np.abs(wide[:, 0] - expected[:, 0]).max() > 0.01
    assert (np.diff(wide[:, 1:]) > np.diff(expected[:, 1:])).all()  # they hold whole intervals


def test_labels_with_a_large_standard_error_count_little(frame):
    rng = np.random.default_rng(0)
    is_wrong = rng.random(len(frame)) < 0.3
    labels = frame["logS"] + np.where(is_wrong, 6.0, 0.0)
    table = frame.assign(noisy=labels, se=np.where(is_wrong, 50.0, 0.1))
    table["split"] = np.resize(["train", "train", "val"], len(table))
    options = {**PROCESS, "descriptors": "none", "split_column": "split", "split": None}
    runs = [
        trained(table, target, **options, std_columns=columns)
        for target, columns in (("logS", ()), ("noisy", ("se",)), ("noisy", ()))
    ]
    right, weighted, plain = (run.model.predict(table["smiles"].tolist())[:, 0] for run in runs)
    errors = [np.abs(values - right)[~is_wrong].mean() for values in (weighted, plain)]
    assert errors[0] < 0.5 * errors[1]
    row_mean, std_mean = runs[1].model.gaussian_process.mean_weights
    assert row_mean == 1.0
    assert 0.0 < std_mean < 4.0
    assert np.isnan(runs[2].model.gaussian_process.mean_weights[1])
