import copy
import io
import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from rdkit import Chem
from rdkit.Chem import Descriptors
from rich.console import Console

from molattn import MolAttn
from molattn.config import PredictConfig, TrainConfig
from molattn.data.table import bundled_dataset
from molattn.errors import InputError
from molattn.evaluation.scoring import score_run
from molattn.inference.predict import predict_table
from molattn.model.artefact import GAUSSIAN_PROCESS_FILE
from molattn.model.outputs import shares_of_second
from molattn.sklearn import MolAttnClassifier, MolAttnRegressor
from molattn.training import gaussian_process
from molattn.training.fine_tuning import load_pretrained
from molattn.training.run import train

from ..conftest import rows_of

TINY = {"width": 8, "heads": 2, "layers": 1, "edge_width": 4, "epochs": 2, "batch_size": 16}
TINY |= {"init_from": "none", "device": "cpu", "baselines": False, "bootstrap": 0}
ALONE = {name: TINY[name] for name in ("init_from", "device", "baselines", "bootstrap")}
NEW = ["CCO", "c1ccccc1N", "CC(=O)OC"]


@pytest.fixture(scope="module")
def frame():
    table = pd.read_csv(bundled_dataset()).iloc[:60].reset_index(drop=True)
    table = table[["smiles", "logS"]]
    table["soluble"] = np.where(table["logS"] > -2, "yes", "no")
    table["phase"] = np.resize(["solid", "liquid", "gas"], len(table))
    table["solvent"] = np.resize(["O", "CCO", "ClCCl"], len(table))
    table["temp"] = 20.0 + np.arange(len(table)) % 5
    return table


def trained(frame, targets="logS", console=None, folder=None, **options):
    common = ALONE if options.get("predictor") == "gaussian_process" else TINY
    options = {**common, "split": "random", "target_columns": targets, **options}
    return train(TrainConfig.from_options("", options), console, folder, frame=frame)


@pytest.fixture(scope="module")
def both(frame):
    return trained(frame, keep_training_molecules=True)


def process_alone(model, smiles):
    """What the Gaussian process predicts on the transformed scale."""
    _, inputs = model.network_outputs([model.featurize(text) for text in smiles])
    return model.to_transformed(model.gaussian_process.predict(inputs))


def test_the_default_is_the_mean_of_network_and_gaussian_process(frame, both):
    network = trained(frame, predictor="network").model
    assert (network.gaussian_process, network.config.kernels) == (None, ())
    model = both.model
    # Descriptors speak for solubility.
    assert model.config.kernels == ("morgan", "atom_pairs", "embedding", "descriptors")
    for name, weights in network.state_dict().items():  # the network is the same
        assert weights.equal(model.state_dict()[name])
    (share,) = model.gaussian_process.shares
    assert 0.0 < share < 1.0
    mean = (1 - share) * network.predict(NEW) + share * process_alone(model, NEW)
    np.testing.assert_allclose(model.predict(NEW), mean, rtol=1e-6, atol=1e-6)


def test_it_rests_on_training_and_validation_rows(frame, both):
    process, parts = both.model.gaussian_process, both.parts
    lines = {both.table.rows[row].line for part in (parts.train, parts.val) for row in part}
    assert {*process.rows.tolist()} == lines
    smiles = {row.line: both.table.smiles[n] for n, row in enumerate(both.table.rows)}
    kept = both.model.training_set.molecules
    names = dict(zip(kept.rows.tolist(), kept.smiles, strict=True))
    assert names == {line: smiles[line] for line in lines}
    near = both.model.neighbors(NEW, 2)["logS"]
    assert all(one.smiles == smiles[one.row] for row in near for one in row)


def test_validation_outputs_know_nothing_of_their_labels(frame, both):
    """The process that predicted them did not learn from them."""
    val = both.parts.val
    changed = frame.copy()
    rows = [both.table.rows[row].line - both.table.rows[0].line for row in val]
    changed.loc[rows, "logS"] += 1e-3  # too little for another share
    other = trained(changed, keep_training_molecules=True)
    np.testing.assert_array_equal(other.parts.val, val)
    assert other.model.gaussian_process.shares == both.model.gaussian_process.shares
    np.testing.assert_allclose(other.validation_outputs, both.validation_outputs, rtol=1e-6)
    records = both.table.molecules(val).records
    after = both.model.predict_outputs(records)
    assert np.abs(after - both.validation_outputs).max() > 1e-3


def test_it_can_predict_alone(frame):
    shown = io.StringIO()
    options = {"predictor": "gaussian_process", "kernels": ("morgan", "torsions", "descriptors")}
    options["descriptors"] = "all"
    run = trained(frame, console=Console(file=shown, width=200), **options)
    assert run.histories == []
    assert ": 100% Gaussian process, 0% network" in shown.getvalue()
    model = run.model
    np.testing.assert_allclose(model.predict(NEW), process_alone(model, NEW), rtol=1e-9)
    spread = np.std([row.item() for row in model.predict(list(frame["smiles"][:20]))])
    assert spread > 0.1
    assert np.isfinite(model.predict_interval(NEW, 0.5)).all()
    assert score_run(run).test.tasks["logS"]["rmse"] > 0.0


def test_descriptors_are_compared_if_the_labels_speak_for_it(frame):
    options = {"predictor": "gaussian_process", "init_from": "base"}
    kernels = ("morgan", "atom_pairs", "embedding")
    weights = [Descriptors.MolWt(Chem.MolFromSmiles(text)) for text in frame["smiles"]]
    random = np.random.default_rng(0).normal(size=len(frame))
    for labels, expected in ((weights, (*kernels, "descriptors")), (random, kernels)):
        shown = io.StringIO()
        table = frame.assign(logS=labels)
        model = trained(table, console=Console(file=shown, width=200), **options).model
        assert model.config.kernels == expected
        assert model.config.descriptors == ("MolWt", "NOCount", "NHOHCount")
        assert {*model.gaussian_process.kernel.numbers} == {*expected} - {"morgan", "atom_pairs"}
        said = "compares" if "descriptors" in expected else "does not compare"
        assert f"the Gaussian process {said} descriptors: their log Bayes" in shown.getvalue()
        assert np.isfinite(model.predict(NEW)).all()
    given = (*kernels, "descriptors")  # what is listed is compared in any case
    model = trained(frame.assign(logS=random), kernels=given, **options).model
    assert model.config.kernels == given
    assert model.gaussian_process.kernel.numbers["descriptors"].points.shape[1] == 3


def test_alone_it_reads_the_embedding_of_the_packaged_model(frame):
    shown = io.StringIO()
    console = Console(file=shown, width=200)
    run = trained(frame, console=console, predictor="gaussian_process", init_from="base")
    assert "no network is trained; embeddings of the pretrained model base\n" in shown.getvalue()
    assert "Starting from" not in shown.getvalue()
    base = MolAttn.from_pretrained("base")
    np.testing.assert_allclose(run.model.embed(NEW), base.embed(NEW), atol=1e-5)
    assert np.isfinite(run.model.predict(NEW)).all()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"predictor": "gaussian_process"}, "leave embedding out of --kernels"),
        ({"predictor": "network", "kernels": ("morgan",)}, "kernels: is used only with"),
        ({"predictor": "network", "inducing_points": 5}, "inducing_points: is used only"),
        (
            {"kernels": ("morgan", "descriptors"), "descriptors": "none"},
            "descriptors needs --descriptors lipinski",
        ),
        ({"kernels": 3}, "kernels: got"),
        ({"kernels": ("morgan", "morgan")}, "kernels: got"),
        ({"kernels": ("maccs",)}, "kernels: got 'maccs'"),
        ({"inducing_points": 0}, "inducing_points: got 0"),
        ({"inducing_points": 20_001}, "inducing_points: got 20001"),
        ({"predictor": "forest"}, "predictor: got 'forest'"),
    ],
)
def test_options_that_do_not_go_together_are_named(options, message):
    with pytest.raises(InputError, match=message):
        TrainConfig.from_options("a.csv", {"target_columns": "y", "init_from": "none", **options})


@pytest.mark.parametrize(
    "options",
    [
        {"width": 64},
        {"layers": 2},
        {"head": "mlp"},
        {"partner": "cross_attention", "partner_column": "solvent"},
        {"dropout": 0.2, "init_from": "runs/other"},
        {"head": "mlp", "init_from": "base"},
        {"epochs": 3},
        {"ensemble": 2},
        {"precision": "bf16"},
        {"freeze": "encoder"},
        {"head_steps": 0},
        {"task_weights": (2.0,)},
        {"morgan_counts": 512},
    ],
)
def test_alone_it_refuses_options_of_a_network_in_training(options):
    name = next(iter(options))
    message = f"^{name}: cannot be used with predictor gaussian_process"
    with pytest.raises(InputError, match=message):
        config_alone(**options)
    TrainConfig.from_options("a.csv", {"target_columns": "y", **options})


def config_alone(**options):
    options = {"target_columns": "y", "predictor": "gaussian_process", **options}
    return TrainConfig.from_options("a.csv", options)


def test_alone_it_takes_the_network_of_a_given_model(frame, tmp_path):
    small = trained(frame, predictor="network", epochs=1).model
    small.save_pretrained(tmp_path / "small")
    options = {"predictor": "gaussian_process", "init_from": str(tmp_path / "small")}
    run = trained(frame, **options)
    assert run.config.network.width == TINY["width"]
    again = TrainConfig.from_dict(run.config.to_dict())  # as config.yaml has it
    assert again == run.config
    np.testing.assert_allclose(run.model.embed(NEW), small.embed(NEW), atol=1e-5)
    with pytest.raises(InputError, match="width: got 64, but the model of init_from"):
        trained(frame, width=64, **options)
    default = config_alone(seed=3, threads=2, kernels=("morgan",), device="cpu")
    resolved, pretrained = load_pretrained(default)
    assert (resolved.fine_tuning.init_from, pretrained is None) == ("base", False)


@pytest.mark.parametrize(
    "options",
    [
        {"predictor": "both"},
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
    assert found.shape == (3, 5)
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
            _, read = model.network_outputs(records, features=given["features"])
            kernels.append(model.gaussian_process.kernel(read))
        assert np.abs(kernels[0] - kernels[1]).max() > 1e-3
    # A table gives the same.
    rows = pd.DataFrame({"smiles": NEW, "solvent": inputs["partners"], "temp": [20, 21, 22]})
    rows.to_csv(tmp_path / "in.csv", index=False)
    predict_table(again, tmp_path / "in.csv", tmp_path / "out.csv", PredictConfig(neighbors=2))
    written = [float(row["logS_predicted"]) for row in rows_of(tmp_path / "out.csv")]
    np.testing.assert_allclose(written, found[:, 0], rtol=1e-5, atol=1e-5)


def test_a_resumed_run_has_the_same_files(frame, tmp_path, monkeypatch):
    for name in ("whole", "again"):
        (tmp_path / name).mkdir()
    whole = trained(frame, folder=tmp_path / "whole")
    forward, calls = MolAttn.forward, []

    def interrupted(self, *args):
        calls.append(self.training)
        if sum(calls) == 5:  # in the second epoch
            raise KeyboardInterrupt
        return forward(self, *args)

    monkeypatch.setattr(MolAttn, "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained(frame, folder=tmp_path / "again")
    monkeypatch.undo()
    resumed = trained(frame, folder=tmp_path / "again")
    files = [run.model.to_files(tmp_path).content for run in (whole, resumed)]
    assert files[0] == files[1]
    assert GAUSSIAN_PROCESS_FILE in files[0]


def test_estimators_are_pickled_with_it():
    smiles = ["C" * n + end for n in range(1, 9) for end in ("O", "N", "c1ccccc1")]
    carbons = np.array([text.upper().count("C") for text in smiles], dtype=float)
    options = {"width": 4, "heads": 1, "layers": 1, "edge_width": 4, "epochs": 1, "device": "cpu"}
    for estimator, y in ((MolAttnRegressor, carbons), (MolAttnClassifier, carbons > 5)):
        fitted = estimator(init_from="none", **options).fit(smiles, y)
        assert fitted.model_.gaussian_process is not None
        again = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(again.predict(NEW), fitted.predict(NEW))
    alone = MolAttnRegressor(predictor="gaussian_process", kernels=("morgan",), init_from="none")
    assert alone.fit(smiles, carbons).n_iter_ == 0
    assert alone.predict(["CCCCCCO"]) > alone.predict(["CO"]) + 1.0


def test_joined_models_have_none(both, tmp_path):
    joined = MolAttn.ensemble([both.model, both.model])
    assert (joined.gaussian_process, joined.config.kernels) == (None, ())
    assert both.model.gaussian_process is not None
    joined.save_pretrained(tmp_path)
    again = MolAttn.from_pretrained(tmp_path)
    np.testing.assert_array_equal(again.predict(NEW), joined.predict(NEW))
    MolAttn.ensemble([joined, both.model])  # the same network, without kernels


def test_neighbors_are_the_training_rows_that_contribute_most(frame, both, tmp_path):
    model = both.model
    process, task = model.gaussian_process, "logS"
    (tmp_path / "in.csv").write_text("smiles\n" + "\nnonsense\n".join(NEW) + "\n")
    predict_table(model, tmp_path / "in.csv", tmp_path / "out.csv", PredictConfig(neighbors=3))
    rows = rows_of(tmp_path / "out.csv")
    assert [row["error"] != "" for row in rows] == [False, True, False, True, False]
    good = [row for row in rows if not row["error"]]
    for row, found in zip(good, model.neighbors(NEW, 3)[task], strict=True):
        for number, one in enumerate(found, start=1):
            cells = [row[f"logS_neighbor_{number}_{name}"] for name in one._fields]
            assert [int(cells[0]), cells[3]] == [one.row, one.smiles]
            np.testing.assert_allclose([*map(float, cells[1:3])], one[1:3], rtol=1e-5)
            assert one.smiles == frame["smiles"][one.row - both.table.rows[0].line]
        assert all(abs(a.contribution) >= abs(b.contribution) for a, b in pairwise(found))
    assert all(rows[1][f"logS_neighbor_1_{name}"] == "" for name in ("row", "smiles"))
    # All of them, and the mean, are the part of the Gaussian process.
    share = process.shares[0]
    mean = process.means[0] * model.target_scale.item() + model.target_mean.item()
    sums = [
        sum(one.contribution for one in row)
        for row in model.neighbors(NEW, len(process.rows))[task]
    ]
    expected = share * (process_alone(model, NEW)[:, 0] - mean)
    np.testing.assert_allclose(sums, expected, rtol=1e-6, atol=1e-9)
    kept = model.training_set.molecules
    first = kept.smiles[kept.rows.tolist().index(process.rows[0])]
    known = model.neighbors([first], len(process.rows))[task][0]
    assert next(one for one in known if one.row == process.rows[0]).similarity > 0.999
    assert f"{task}_predicted" in rows[0]


def test_neighbors_cost_no_second_run_of_the_network(both, tmp_path, monkeypatch):
    runs, network_outputs = [], MolAttn.network_outputs

    def counted(self, records, *args, **options):
        runs.append(len(records))
        return network_outputs(self, records, *args, **options)

    monkeypatch.setattr(MolAttn, "network_outputs", counted)
    (tmp_path / "in.csv").write_text("smiles\n" + "\n".join(NEW) + "\n")
    predict_table(both.model, tmp_path / "in.csv", tmp_path / "o.csv", PredictConfig(neighbors=1))
    assert runs == [len(NEW)]


def test_neighbors_of_a_gaussian_process_without_a_share_are_told(both, tmp_path):
    model = copy.copy(both.model)
    model.gaussian_process = replace(both.model.gaussian_process, shares=np.zeros(1))
    (tmp_path / "in.csv").write_text("smiles\nCCO\n")
    console = Console(file=io.StringIO(), width=80)
    files = tmp_path / "in.csv", tmp_path / "out.csv"
    told = (
        "'logS': the Gaussian process has no share in the predictions, so that neighbors "
        "contribute 0\n"
    )
    predict_table(model, *files, PredictConfig(neighbors=1), console)
    assert told in console.file.getvalue()
    assert float(rows_of(files[1])[0]["logS_neighbor_1_contribution"]) == 0.0
    for other, config in ((model, PredictConfig()), (both.model, PredictConfig(neighbors=1))):
        console = Console(file=io.StringIO(), width=80)
        predict_table(other, *files, config, console)
        assert told not in console.file.getvalue()


def test_neighbors_of_each_target_are_named(frame, tmp_path, monkeypatch):
    table = frame.copy()
    table["double"] = 2.0 * table["logS"]
    targets = ("logS", "phase", "double")
    model = trained(table, targets, predictor="gaussian_process", kernels=("morgan",)).model
    found = model.neighbors(NEW, 2)
    assert [*found] == [*targets]
    (tmp_path / "in.csv").write_text("smiles\n" + "\n".join(NEW) + "\n")
    predict_table(model, tmp_path / "in.csv", tmp_path / "out.csv", PredictConfig(neighbors=2))
    for place, row in enumerate(rows_of(tmp_path / "out.csv")):
        for task in targets:
            cells = [int(row[f"{task}_neighbor_{number}_row"]) for number in (1, 2)]
            assert cells == [one.row for one in found[task][place]]
    for one, twice in zip(found["logS"], found["double"], strict=True):
        assert [near.row for near in one] == [near.row for near in twice]
        contributions = [[near.contribution for near in each] for each in (one, twice)]
        np.testing.assert_allclose(2.0 * np.array(contributions[0]), contributions[1], rtol=1e-5)
    # The kernel is computed for a few molecules at once.
    kernel, sizes = type(model.gaussian_process.kernel).__call__, []

    def counted(self, inputs):
        sizes.append(len(inputs))
        return kernel(self, inputs)

    monkeypatch.setattr(type(model.gaussian_process.kernel), "__call__", counted)
    many = model.neighbors(NEW * 100, 1)
    assert sum(sizes) == 300
    assert max(sizes) < 200
    assert [row[0].row for row in many["phase"]] == [row[0].row for row in found["phase"]] * 100


def test_numbers_of_neighbors_that_a_model_does_not_have(both, tmp_path):
    (tmp_path / "in.csv").write_text("smiles\nCCO\n")
    most = len(both.model.gaussian_process.rows)
    points = "the number of inducing points of the Gaussian process"
    expected = f"expected a whole number from 1 to {most}, {points}"
    for count in (0, most + 1):
        with pytest.raises(InputError, match=f"^count: got {count}, {expected}"):
            both.model.neighbors(["CCO"], count)
    config, output = PredictConfig(neighbors=most + 1), tmp_path / "out.csv"
    with pytest.raises(InputError, match=f"^neighbors: got {most + 1}, {expected}"):
        predict_table(both.model, tmp_path / "in.csv", output, config)
    assert not output.exists()
    for count in (0, -1):
        with pytest.raises(InputError, match=f"^neighbors: got {count}, expected"):
            PredictConfig(neighbors=count)


def test_neighbors_of_a_model_without_smiles_and_without_a_gaussian_process(frame, both, tmp_path):
    (tmp_path / "in.csv").write_text("smiles\nCCO\n")
    plain = trained(frame, predictor="gaussian_process", kernels=("morgan",)).model
    predict_table(plain, tmp_path / "in.csv", tmp_path / "out.csv", PredictConfig(neighbors=1))
    (row,) = rows_of(tmp_path / "out.csv")
    assert "logS_neighbor_1_row" in row
    assert "logS_neighbor_1_smiles" not in row
    assert plain.neighbors(NEW, 1)["logS"][0][0].smiles is None
    joined = MolAttn.ensemble([both.model, both.model])
    with pytest.raises(InputError, match="neighbors: the model has no Gaussian process"):
        predict_table(joined, tmp_path / "in.csv", tmp_path / "o.csv", PredictConfig(neighbors=1))
    with pytest.raises(InputError, match="has no Gaussian process"):
        joined.neighbors(NEW)


def test_a_share_of_100_percent_does_not_hide_a_trained_network(both, tmp_path):
    model, labels = copy.deepcopy(both.model), np.linspace(-1.0, 1.0, 5000)
    share = shares_of_second(
        model.config.tasks[:1], 0.0 * labels[:, None], labels[:, None], labels[:, None]
    )[0]
    assert f"{share:.2%}" == "100.00%"
    model.gaussian_process = replace(model.gaussian_process, shares=np.array([share]))
    model.save_pretrained(tmp_path / "model")
    loaded = MolAttn.from_pretrained(tmp_path / "model")
    assert MolAttn.ensemble([loaded, loaded]).config.members == 2


def test_a_model_without_a_trained_head_gives_none_away(frame, tmp_path):
    options = {"predictor": "gaussian_process", "kernels": ("morgan", "atom_pairs")}
    model = trained(frame, **options).model
    with pytest.raises(InputError, match="model 1 predicts by its Gaussian process alone"):
        MolAttn.ensemble([model, model])
    model.save_pretrained(tmp_path / "model")
    log = Console(file=io.StringIO(), width=200)
    network = {"width": 128, "heads": 8, "layers": 4, "edge_width": 16}
    trained(frame, console=log, init_from=str(tmp_path / "model"), epochs=1, **network)
    assert "with a new head" in log.file.getvalue()


def test_second_molecules_are_compared_or_refused(frame):
    with pytest.raises(InputError, match="kernels descriptors cannot be used with partner"):
        trained(frame, partner_column="solvent", kernels=("descriptors",), descriptors="lipinski")


def test_the_order_of_rows_does_not_change_the_inducing_points(frame):
    table = frame.assign(part=np.resize(["train", "train", "train", "val", "test"], 60))
    shuffled = table.sample(frac=1.0, random_state=5)
    options = {"predictor": "gaussian_process", "kernels": ("morgan", "atom_pairs")}
    options |= {"inducing_points": 15, "keep_training_molecules": True, "split": None}
    runs = [trained(one, split_column="part", **options) for one in (table, shuffled)]
    smiles = []
    for run in runs:
        kept = run.model.training_set.molecules
        names = dict(zip(kept.rows.tolist(), kept.smiles, strict=True))
        smiles.append([names[row] for row in run.model.gaussian_process.rows.tolist()])
    assert smiles[0] == smiles[1]
    assert len({*smiles[0]}) == 15
    np.testing.assert_allclose(*(run.model.predict(NEW) for run in runs), rtol=1e-4, atol=1e-5)


def test_of_many_rows_those_with_rare_labels_are_learned(frame, both, monkeypatch):
    monkeypatch.setattr(gaussian_process, "_MOST_LEARNED", 10)
    monkeypatch.setattr(gaussian_process, "_MOST_HELD_OUT", 3)
    rare = np.full(len(frame), np.nan)
    places = both.parts.train[[3, -3]]
    rare[places] = 1.0, 2.0
    run = trained(frame.assign(rare=rare), targets=["logS", "rare"], epochs=1)
    np.testing.assert_array_equal(run.parts.train, both.parts.train)
    lines = [run.table.rows[place].line for place in places]
    assert {*lines} <= {*run.model.gaussian_process.rows.tolist()}
    assert np.isfinite(run.model.predict(NEW)).all()


def test_many_sets_of_missing_labels_have_fewer_inducing_points(frame):
    rng = np.random.default_rng(0)
    names = [f"y{n}" for n in range(40)]
    for name in names:
        frame = frame.assign(**{name: np.where(rng.random(60) < 0.8, rng.normal(size=60), np.nan)})
    model = trained(frame, targets=names, predictor="network", epochs=1).model
    process = trained(frame, targets=names, inducing_points=40, epochs=1).model.gaussian_process
    assert len(process.rows) == round(40 * (16 / 40) ** (1 / 3))
    assert np.isfinite(process.weights).all()
    assert model.gaussian_process is None
