import io
import json
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from sklearn.linear_model import LinearRegression

import molattn
from molattn.cli import main
from molattn.config import (
    DataConfig,
    FineTuningConfig,
    MoleculesConfig,
    PretrainConfig,
    PretrainLoopConfig,
    PretrainNetworkConfig,
    SupervisedConfig,
    TrainConfig,
)
from molattn.config.yaml_file import read_config_file, write_config_file
from molattn.data import prepare
from molattn.data.table import bundled_dataset
from molattn.errors import InputError
from molattn.model.artefact import PACKAGED, WEIGHTS_FILE, ModelFiles
from molattn.model.model import MolAttn
from molattn.pretraining import pretrain
from molattn.pretraining import run as run_module
from molattn.pretraining.batches import MaskedLoader
from molattn.training.checkpoint import CHECKPOINT_FILE
from molattn.training.fine_tuning import load_pretrained
from molattn.training.run import train
from molattn.training.run_folder import CONFIG_FILE

from ..conftest import rows_of


def weights(run):
    return run.model.state_dict()


def interrupted(config, folder, monkeypatch):
    """A run that is interrupted after the checkpoint of its second step, and goes on from it."""
    plain, given = MaskedLoader.batch, []

    def batch(self, rows, place):
        given.append(place)
        if len(given) == 5:  # the fifth batch, but for the first: that of the entropies
            raise KeyboardInterrupt
        return plain(self, rows, place)

    folder.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(MaskedLoader, "batch", batch)
        with pytest.raises(KeyboardInterrupt):
            pretrain(config, folder, None)
        assert (folder / "checkpoint.safetensors").exists()
        shown = io.StringIO()
        run = pretrain(config, folder, Console(file=shown, width=500))
    assert given[6] == (0, 2)
    assert "Resuming after epoch 0, step 2\n" in shown.getvalue()
    return run


def test_an_interrupted_run_comes_to_the_same_weights_bit_for_bit(config, tmp_path, monkeypatch):
    whole = pretrain(config, tmp_path / "whole", None)
    parted = interrupted(config, tmp_path / "parted", monkeypatch)
    assert all(torch.equal(weights(whole)[name], weights(parted)[name]) for name in weights(whole))
    assert whole.scores == parted.scores
    assert parted.history.steps == whole.history.steps == 8
    # What it learned from other molecules is no continuation.
    other = tmp_path / "other.smi"
    other.write_text("\n".join("C" * n for n in range(1, 40)))
    shutil.rmtree(tmp_path / "parted" / "molecules")
    with pytest.raises(InputError, match="parted/molecules: the molecules have changed since"):
        pretrain(replace(config, files=(str(other),)), tmp_path / "parted", None)


@pytest.mark.parametrize(
    "section,options,said",
    [
        ("training", {"seed": 1}, "seed: got 1, but the run in .* has 0"),
        ("training", {"learning_rate": 0.1}, "learning_rate: got 0.1"),
        ("molecules", {"validation_molecules": 5}, "validation_molecules: got 5"),
        ("molecules", {"masked_atoms": 0.5}, "masked_atoms: got 0.5"),
    ],
)
def test_a_run_goes_on_with_its_own_options_alone(section, options, said, config, tmp_path):
    config = replace(config, training=replace(config.training, epochs=1))
    pretrain(config, tmp_path, None)
    other = replace(config, **{section: replace(getattr(config, section), **options)})
    with pytest.raises(InputError, match=said):
        pretrain(other, tmp_path, None)


@pytest.mark.parametrize("options", [{"layer": "mat"}, {"pairs": "bonds", "distances": False}])
def test_other_networks_learn_and_others_begin_with_them(config, options, tmp_path):
    network = replace(config.network, edge_width=16, **options)
    once = replace(config.training, epochs=1)
    run = pretrain(replace(config, network=network, training=once), tmp_path, None)
    assert all(bool(value.isfinite().all()) for value in weights(run).values())
    run.model.save_pretrained(tmp_path / "model")
    chosen = TrainConfig.from_options(
        "", {"target_columns": "logS", "init_from": str(tmp_path / "model")}
    )
    found = load_pretrained(chosen)[0].network
    own = ("dropout", "head", "head_dropout")
    assert {**vars(network), **{name: getattr(found, name) for name in own}} == vars(found)
    given = TrainConfig.from_options(
        "", {"target_columns": "logS", "init_from": str(tmp_path / "model"), "layer": "gaan"}
    )
    with pytest.raises(InputError, match="layer: got gaan, but the model of init_from"):
        load_pretrained(given)


def test_time_ends_a_run_and_longer_ones_learn(config, tmp_path):
    hurried = replace(config.training, max_hours=1e-9, epochs=9)
    (tmp_path / "short").mkdir()
    short = pretrain(replace(config, training=hurried), tmp_path / "short", None)
    assert (short.history.steps, len(short.history.epochs)) == (1, 1)
    longer = replace(config.training, epochs=12, learning_rate=0.02, warmup=0.1)
    (tmp_path / "long").mkdir()
    run = pretrain(replace(config, training=longer), tmp_path / "long", None)
    first, last = run.history.epochs[0], run.history.epochs[run.history.best - 1]
    assert last.train_loss < 0.8 * first.train_loss
    assert run.scores["bonds"]["accuracy"] > 0.4
    assert run.scores["descriptors"]["mean_r2"] > short.scores["descriptors"]["mean_r2"]


@pytest.fixture
def former(config, tmp_path):
    """A pretrained model, and a run of no options of its own that goes on from it."""
    place = tmp_path / "former"
    place.mkdir()
    once = replace(config.training, epochs=1)
    model = pretrain(replace(config, training=once), place, None).model
    model.save_pretrained(place / "model")
    # so slow that what is taken over stays as it was
    slow = replace(once, learning_rate=1e-12, weight_decay=0.0, init_from=str(place / "model"))
    network = PretrainNetworkConfig(dropout=0.2)
    return model, replace(config, network=network, training=slow)


def test_it_goes_on_from_a_model_with_its_network_and_weights(former, tmp_path):
    model, config = former
    (tmp_path / "on").mkdir()
    shown = io.StringIO()
    run = pretrain(config, tmp_path / "on", Console(file=shown, width=500))
    assert (
        f"Starting from the pretrained model {tmp_path / 'former' / 'model'} (new head)\n"
        in shown.getvalue()
    )
    then, now = model.config.network, run.model.config.network
    assert now == replace(then, dropout=0.2)
    assert weights(run).keys() == model.state_dict().keys()
    taken = [name for name in weights(run) if name.startswith("nets.") and ".head." not in name]
    assert any(".encoder." in name for name in taken)
    for name in taken:
        value = model.state_dict()[name]
        torch.testing.assert_close(weights(run)[name], value, rtol=0, atol=1e-8, msg=name)
    # A head goes with the scaling of its descriptors, which is that of other molecules.
    heads = [name for name in weights(run) if ".head." in name and name.endswith("weight")]
    assert heads
    assert not any(torch.equal(weights(run)[name], model.state_dict()[name]) for name in heads)
    assert run.init_from == ModelFiles.read(tmp_path / "former" / "model").digest


def test_going_on_interrupted_comes_to_the_same_weights(former, tmp_path, monkeypatch):
    _, config = former
    config = replace(config, training=replace(config.training, learning_rate=0.01))
    (tmp_path / "whole").mkdir()
    whole = pretrain(config, tmp_path / "whole", None)
    parted = interrupted(config, tmp_path / "parted", monkeypatch)
    assert all(torch.equal(weights(whole)[name], weights(parted)[name]) for name in weights(whole))


def test_it_goes_on_from_the_very_model_it_began_with(former, config, tmp_path):
    model, begun = former
    (tmp_path / "on").mkdir()
    pretrain(begun, tmp_path / "on", None)
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    model.save_pretrained(tmp_path / "former" / "model")
    with pytest.raises(InputError, match=r"init_from: the model .* has changed since"):
        pretrain(begun, tmp_path / "on", None)
    other = replace(begun, network=replace(begun.network, width=16))
    with pytest.raises(InputError, match=r"width: got 16, but the model of init_from .* has 8"):
        pretrain(other, tmp_path / "on", None)


_SMALL = "--width 8 --heads 2 --layers 1 --edge-width 4 --epochs 1 --batch-size 32 --device cpu"


@pytest.fixture(scope="module")
def written(tmp_path_factory, smiles_file):
    """A run of the command."""
    output = tmp_path_factory.mktemp("command") / "run"
    words = f"pretrain {smiles_file} --output {output} {_SMALL}"
    assert main([*words.split(), "--data-note", "Public domain."]) == 0
    return output


def test_the_command_writes_a_model_that_predicts_descriptors(written, capsys):
    assert {path.name for path in written.iterdir()} == {
        "config.yaml",
        "history.csv",
        "metrics.json",
        "model",
    }
    model = MolAttn.from_pretrained(written)
    assert "MolLogP" in model.config.targets
    assert np.isfinite(model.predict(["CCO"])).all()
    figures = json.loads((written / "metrics.json").read_text())
    assert figures["validation"]["descriptors"]["r2"].keys() == {*model.config.targets}
    assert (
        figures["molecules"]["training"] + figures["molecules"]["validation"]
        == (figures["molecules"]["kept"])
    )
    card = (written / "model" / "README.md").read_text()
    digest = figures["molecules"]["files"][0]["sha256"]
    for said in ("Public domain.", digest, "--device cpu, --threads ", "--width 8"):
        assert said in card
    assert main(["pretrain", "--resume", str(written)]) == 0
    assert "nothing to resume" in capsys.readouterr().out


def columns_table(path, smiles, count):
    """Write a table of molecules with ``count`` columns, functions of three numbers of each."""
    known = np.array([[len(one), one.count("C"), one.count("c")] for one in smiles])
    mixed = np.random.default_rng(0).normal(size=(3, count))
    columns = pd.DataFrame(known @ mixed + 1000.0).add_prefix("emb_")
    columns.insert(0, "smiles", smiles)
    columns.to_csv(path, index=False)


def test_the_command_learns_columns_of_the_table(smiles_file, tmp_path, capsys):
    smiles = smiles_file.read_text().split()
    columns_table(tmp_path / "t.csv", smiles, 20)
    with (tmp_path / "t.csv").open("a") as file:
        file.write(f"CCCCCCCCl{',n.d.' * 20}\n")
    words = f"pretrain {tmp_path / 't.csv'} --pretraining-columns emb_* --targets columns "
    words += f"{_SMALL} --learning-rate 0.01 --output {tmp_path / 'run'}"
    assert main(words.split()) == 0
    assert "R² of columns" in capsys.readouterr().out
    (invalid,) = rows_of(tmp_path / "run" / "rejected.csv")
    assert invalid["reason"] == "column 'emb_0': got 'n.d.', expected a number or an empty cell"
    words = words.replace("--epochs 1", "--epochs 40")
    assert main([*words.split(), "--overwrite"]) == 0  # the list is a part of the run
    scores = json.loads((tmp_path / "run" / "metrics.json").read_text())["validation"]
    assert list(scores) == ["columns"]  # nothing else was learned
    found = scores["columns"]
    assert found["r2"].keys() == {f"emb_{number}" for number in range(20)}
    assert found["mean_r2"] > 0.3
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "--pretraining-columns 'emb_*'" in card
    assert "--targets columns" in card
    assert "| columns, R² (mean) |" in card
    assert "It did not learn the descriptors" in card
    assert "Embeddings are projected" in card
    assert "masked" not in card.partition("Scores")[2]
    model = MolAttn.from_pretrained(tmp_path / "run")
    assert "emb_0" not in model.config.targets
    vectors = model.nets[0].encode(model.collate([model.featurize(one) for one in smiles]))
    embedding, projection = model.embed(smiles), model.nets[0].projection
    np.testing.assert_allclose(embedding, (vectors @ projection).detach(), atol=1e-4)
    # The columns have three dimensions; the embedding is about as far apart in others as noise.
    spread = np.linalg.svd(embedding - embedding.mean(axis=0), compute_uv=False)
    assert spread[3] < 0.2 * spread[0]
    known = pd.read_csv(tmp_path / "t.csv", nrows=len(smiles)).iloc[:, 1:]
    assert LinearRegression().fit(embedding, known).score(embedding, known) > 0.3
    # The weights alone tell that there is a projection.
    copied = MolAttn(model.config)
    copied.load_state_dict(model.state_dict())
    np.testing.assert_allclose(copied.embed(smiles[:3]), embedding[:3], atol=1e-5)
    assert MolAttn.ensemble([model, copied]).embed(smiles[:2]).shape[1] == 2 * len(projection)
    # A model that starts from it has its projection, for each of two molecules.
    table = tmp_path / "pairs.csv"
    rows = [f"{one},{other},{len(one)}" for one, other in pairwise(smiles)]
    table.write_text("\n".join(["smiles,second,y", *rows]) + "\n")
    options = {"target_columns": ["y"], "partner_column": "second", "epochs": 1, "bootstrap": 0}
    options |= {"init_from": str(tmp_path / "run"), "device": "cpu", "baselines": False}
    config = TrainConfig.from_options(str(table), {**options, "learning_rate": 1e-9})
    tuned = train(config).model
    assert torch.equal(tuned.nets[0].projection, projection)
    pair = tuned.embed(smiles[:1], partners=smiles[1:2])
    np.testing.assert_allclose(pair[0], embedding[:2].ravel(), atol=1e-4)


def test_embeddings_are_as_far_apart_as_the_columns_predicted_for_them(smiles_file, tmp_path):
    smiles = smiles_file.read_text().split()
    columns_table(tmp_path / "t.csv", smiles, 24)
    molecules = MoleculesConfig(pretraining_columns=("emb_*",))
    network = PretrainNetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    training = PretrainLoopConfig(epochs=2, device="cpu", targets=("columns", "descriptors"))
    config = PretrainConfig((str(tmp_path / "t.csv"),), molecules, network, training)
    weights = []

    def kept(weight, seed):
        weights.append(weight)
        return projection(weight, seed)

    projection = run_module._projection
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "_projection", kept)
        model = pretrain(config, tmp_path / "whole").model
    batch = model.collate([model.featurize(one) for one in smiles[:10]])
    vectors = model.nets[0].encode(batch).detach()
    predicted = torch.cdist(vectors @ weights[0].T, vectors @ weights[0].T)
    embedded = torch.from_numpy(model.embed(smiles[:10]))
    torch.testing.assert_close(torch.cdist(embedded, embedded), predicted, rtol=1e-3, atol=1e-4)
    # It can be trained on.
    model.nets[0].project(model.nets[0].encode(batch)).sum().backward()
    assert model.nets[0].atom_embedding.weight.grad.abs().sum() > 0
    # One that learns other targets from there, or fewer columns, has none.
    model.save_pretrained(tmp_path / "first")
    more = replace(training, init_from=str(tmp_path / "first"), targets=("descriptors",))
    plain = replace(config, molecules=MoleculesConfig(), training=more)
    assert pretrain(plain, tmp_path / "on").model.nets[0].projection is None
    few = replace(molecules, pretraining_columns=("emb_1", "emb_2"))
    shown = io.StringIO()
    found = pretrain(replace(config, molecules=few), tmp_path / "few", Console(file=shown))
    assert "2 columns, fewer than the 16 dimensions" in shown.getvalue()
    assert found.model.nets[0].projection is None
    assert found.scores["columns"]["r2"].keys() == {"emb_1", "emb_2"}


def test_columns_that_do_not_vary_are_named(smiles_file, tmp_path, capsys):
    smiles = smiles_file.read_text().split()
    table = tmp_path / "t.csv"
    pd.DataFrame({"smiles": smiles, "a": 1.0, "b": 2.0}).to_csv(table, index=False)
    words = f"pretrain {table} --pretraining-columns a b {_SMALL} --output {tmp_path / 'run'}"
    assert main(words.split()) == 2
    shown = capsys.readouterr()
    assert "columns not used, as constant or empty: 'a', 'b'" in shown.out
    assert "got no --pretraining-columns whose values vary" in shown.err


def test_the_command_goes_on_from_a_run_and_its_card_says_so(
    written, smiles_file, tmp_path, capsys
):
    output, first = tmp_path / "more", tmp_path / "first"
    shutil.copytree(written, first)
    words = f"pretrain {smiles_file} --init-from {first} --epochs 1 --output {output}"
    assert main(words.split()) == 0
    card = (output / "model" / "README.md").read_text()
    assert "--init-from first " in card
    assert (
        f"Initial weights from a model, SHA-256 {ModelFiles.read(first / 'model').digest} " in card
    )
    assert str(tmp_path) not in card
    assert MolAttn.from_pretrained(output).config.network.width == 8
    shutil.rmtree(first)  # what is finished does not need it
    assert main(["pretrain", "--resume", str(output)]) == 0
    assert "nothing to resume" in capsys.readouterr().out


def test_a_run_goes_on_from_its_prepared_molecules(
    written, smiles_file, tmp_path, monkeypatch, capsys
):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    output = tmp_path / "run"
    words = f"pretrain {smiles_file} --output {output} {_SMALL}".split()
    words += ["--data-note", "Public domain."]
    with monkeypatch.context() as patch:
        patch.setattr("molattn.pretraining.run.fit", interrupted)
        assert main(words) == 130
    assert f"to resume: molattn pretrain --resume {output}" in capsys.readouterr().err
    assert not (tmp_path / "run.unfinished" / CHECKPOINT_FILE).exists()
    assert main(words) == 2  # it does not begin anew unasked
    assert "contains an unfinished run; --resume" in capsys.readouterr().err
    begun_with = (tmp_path / "run.unfinished" / CONFIG_FILE).read_bytes()
    (tmp_path / "other.smi").write_text("CCO\nCCC\n")
    assert main(["pretrain", str(tmp_path / "other.smi"), "--resume", str(output)]) == 2
    assert (tmp_path / "run.unfinished" / CONFIG_FILE).read_bytes() == begun_with
    with monkeypatch.context() as patch:
        patch.setattr("molattn.data.prepare._write_shards", None)
        assert main(["pretrain", "--resume", str(output)]) == 0
    assert {path.name for path in output.iterdir()} == {path.name for path in written.iterdir()}
    weights = [(run / "model" / WEIGHTS_FILE).read_bytes() for run in (output, written)]
    assert weights[0] == weights[1]


def test_a_run_goes_on_from_a_part_of_its_prepared_molecules(
    written, smiles_file, tmp_path, monkeypatch, capsys
):
    def interrupted(path, arrays):
        if path.name.endswith("_00002.arrow"):
            raise KeyboardInterrupt
        return write(path, arrays)

    write, output = prepare.write_shard, tmp_path / "run"
    monkeypatch.setattr(prepare, "SHARD_ROWS", 16)
    monkeypatch.setattr(prepare, "_BLOCK_ROWS", 16)
    words = f"pretrain {smiles_file} --output {output} {_SMALL}".split()
    words += ["--data-note", "Public domain."]
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "write_shard", interrupted)
        assert main(words) == 130
    assert f"to resume: molattn pretrain --resume {output}" in capsys.readouterr().err
    assert main(["pretrain", "--resume", str(output)]) == 0
    assert "resuming after 32 rows" in capsys.readouterr().out
    weights = [(run / "model" / WEIGHTS_FILE).read_bytes() for run in (output, written)]
    assert weights[0] == weights[1]
    assert not (output / "molecules").exists()


def test_what_an_excluded_table_does_not_keep_out_is_told(smiles_file, tmp_path, capsys):
    (tmp_path / "test.csv").write_text("smiles,y\nCCO,1\nethanol,2\n")
    output = tmp_path / "run"
    words = f"pretrain {smiles_file} --output {output} --exclude {tmp_path / 'test.csv'} {_SMALL}"
    assert main(words.split()) == 0
    said = "--exclude: invalid SMILES, which were ignored: 1 name"
    assert said in capsys.readouterr().out
    figures = json.loads((output / "metrics.json").read_text())
    assert figures["molecules"]["excluded_refused"] == {"name": 1}
    assert "1 rows of the excluded tables have no valid molecule" in (
        (output / "model" / "README.md").read_text()
    )


def test_a_training_begins_with_a_model_of_the_package_by_its_name(written, tmp_path, monkeypatch):
    monkeypatch.setattr("molattn.model.artefact.PACKAGED", tmp_path / "weights")
    with pytest.raises(InputError, match=r"base: no such folder.*packaged model: there is none"):
        MolAttn.from_pretrained("base")
    shutil.copytree(written / "model", tmp_path / "weights" / "base")
    with pytest.raises(InputError, match=r"bas: no such folder.*packaged model: base"):
        MolAttn.from_pretrained("bas")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base").mkdir()  # the package comes first
    pretrained = MolAttn.from_pretrained("base")
    assert pretrained.config.network.width == 8
    config, _ = load_pretrained(
        TrainConfig.from_options(
            str(bundled_dataset()),
            {"target_columns": "logS", "split_column": "split", "init_from": "base", "epochs": 1},
        )
    )
    assert config.fine_tuning == FineTuningConfig(init_from="base")
    assert config.network.width == 8
    assert isinstance(config.data, DataConfig)
    assert isinstance(config.training, SupervisedConfig)
    lines = bundled_dataset().read_text(encoding="utf-8").splitlines()
    (tmp_path / "few.csv").write_text("\n".join([*lines[:31], *lines[-10:]]) + "\n")
    run = train(replace(config, file=str(tmp_path / "few.csv")))
    assert np.isfinite(run.model.predict(["CCO"])).all()


def test_packaged_weights_are_data_of_the_package():
    assert PACKAGED.parent == Path(molattn.__file__).parent / "model"


def test_a_config_file_repeats_a_run(config, tmp_path):
    write_config_file(tmp_path / "c.yaml", config)
    content = read_config_file(tmp_path / "c.yaml", type(config))
    assert type(config).from_dict(content) == config


@pytest.mark.parametrize(
    "words,said",
    [
        (["--output", "o"], "INPUT is missing"),
        (["absent.smi"], "absent.smi: no such file"),
        (["absent.smi", "--output", "o"], "absent.smi"),
        (["a.smi", "--output", "o", "--masked-atoms", "1"], "--masked-atoms"),
        (["a.smi", "--output", "o", "--partner", "cross_attention"], "no second molecule"),
        (["--resume", "r"], "no unfinished run"),
        (["few.smi", "--output", "o"], "expected at least 20"),
        (
            ["some.smi", "--output", "o", "--targets", "columns"],
            "--targets columns needs --pretraining-columns",
        ),
        (["stores/typo", "--output", "o", "--targets", "columns"], "stores/typo: no such file"),
        (
            ["some.smi", "--pretraining-columns", "x", "--targets", "bonds"],
            "pretraining_columns: needs columns in --targets",
        ),
        (
            ["few.smi", "--output", "o", "--width", "16", "--heads", "3"],
            "heads: got 3, expected a divisor of --width",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.smi").write_text("CCO\nCCC\n")
    (tmp_path / "some.smi").write_text("\n".join("C" * n + "O" for n in range(30)))
    assert main(["pretrain", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "o").exists()
