import io
import json
import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from torch.optim.optimizer import register_optimizer_step_post_hook

from molattn.cli import main
from molattn.config import PretrainNetworkConfig, TrainConfig
from molattn.data import prepare
from molattn.errors import InputError
from molattn.model.artefact import WEIGHTS_FILE, ModelFiles
from molattn.model.model import MolAttn
from molattn.pretraining import pretrain
from molattn.pretraining import run as run_module
from molattn.pretraining.batches import MaskedLoader
from molattn.training.run import train

SMALL = "--width 8 --heads 2 --layers 1 --edge-width 4 --epochs 1 --batch-size 32 --device cpu"


def weights(run):
    return run.model.state_dict()


def interrupted(config, folder, monkeypatch):
    """A run that is interrupted after the checkpoint of its second step, and resumed."""
    plain, batches = MaskedLoader.batch, []

    def batch(self, rows, index, *part):
        batches.append(index)
        if len(batches) == 5:  # the fifth batch, but for the first: that of the entropies
            raise KeyboardInterrupt
        return plain(self, rows, index, *part)

    with monkeypatch.context() as patch:
        patch.setattr(MaskedLoader, "batch", batch)
        with pytest.raises(KeyboardInterrupt):
            pretrain(config, folder, None)
        shown = io.StringIO()
        run = pretrain(config, folder, Console(file=shown, width=500))
    assert batches[6] == (0, 2)
    assert "Resuming after epoch 0, step 2\n" in shown.getvalue()
    return run


def test_an_interrupted_run_has_the_same_weights_bit_for_bit(config, tmp_path, monkeypatch):
    whole = pretrain(config, tmp_path / "whole", None)
    resumed = interrupted(config, tmp_path / "resumed", monkeypatch)
    assert all(torch.equal(weights(whole)[name], weights(resumed)[name]) for name in weights(whole))
    assert whole.metrics["validation"] == resumed.metrics["validation"]
    assert resumed.history.steps == whole.history.steps == 8
    for section, options in (("training", {"seed": 1}), ("molecules", {"masked_atoms": 0.5})):
        other = replace(config, **{section: replace(getattr(config, section), **options)})
        with pytest.raises(InputError) as error:
            pretrain(other, tmp_path / "whole", None)
        assert error.value.option == next(iter(options))
    # What it learned from other molecules is no continuation.
    (tmp_path / "other.smi").write_text("\n".join("C" * n for n in range(1, 40)))
    shutil.rmtree(tmp_path / "resumed" / "molecules")
    other = replace(config, files=(str(tmp_path / "other.smi"),))
    with pytest.raises(InputError, match="changed since"):
        pretrain(other, tmp_path / "resumed", None)


def test_another_network_learns_within_a_time_limit(config, tmp_path, monkeypatch):
    network = replace(config.network, edge_width=16, layer="mat")
    hours = []
    handle = register_optimizer_step_post_hook(lambda *_: hours.append(3600.0))
    clock = "lightning.pytorch.callbacks.Timer.time_elapsed"
    monkeypatch.setattr(clock, lambda *_: sum(hours))  # an hour a step
    hurried = replace(config.training, max_hours=1.0, epochs=9)
    run = pretrain(replace(config, network=network, training=hurried), tmp_path, None)
    handle.remove()
    assert (run.history.steps, len(run.history.curve)) == (1, 1)
    assert all(bool(value.isfinite().all()) for value in weights(run).values())


def test_it_learns(config, tmp_path):
    longer = replace(config.training, epochs=12, learning_rate=0.02, warmup=0.1)
    run = pretrain(replace(config, training=longer), tmp_path, None)
    first, last = run.history.curve[0], run.history.curve[run.history.kept_epoch - 1]
    assert last.train_loss < 0.8 * first.train_loss
    assert run.metrics["validation"]["bonds"]["accuracy"] > 0.4


def test_it_starts_from_a_model_with_its_network_and_weights(config, tmp_path):
    once = replace(config.training, epochs=1)
    config = replace(config, network=replace(config.network, norm="layer"))
    model = pretrain(replace(config, training=once), tmp_path / "first", None).model
    model.save_pretrained(tmp_path / "first" / "model")
    # So slow that what is taken over stays as it was.
    initial = str(tmp_path / "first" / "model")
    slow = replace(once, learning_rate=1e-12, weight_decay=0.0, init_from=initial)
    config = replace(config, network=PretrainNetworkConfig(dropout=0.2), training=slow)
    run = pretrain(config, tmp_path / "run", None)
    assert run.model.config.network == replace(model.config.network, dropout=0.2)
    for name, value in weights(run).items():
        if name.startswith("nets.") and ".head." not in name:
            torch.testing.assert_close(value, model.state_dict()[name], rtol=0, atol=1e-8)
        elif name.endswith("weight"):  # a head depends on the scaling of its descriptors
            assert not torch.equal(value, model.state_dict()[name])
    assert run.metrics["init_from_sha256"] == ModelFiles.read(tmp_path / "first" / "model").digest
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    model.save_pretrained(tmp_path / "first" / "model")
    with pytest.raises(InputError, match="changed since"):
        pretrain(config, tmp_path / "run", None)
    with pytest.raises(InputError) as error:
        pretrain(replace(config, network=replace(config.network, width=16)), tmp_path / "n", None)
    assert error.value.option == "width"


@pytest.fixture(scope="module")
def written(tmp_path_factory, smiles_file):
    """A run of the command, without one invalid excluded molecule."""
    folder = tmp_path_factory.mktemp("command")
    (folder / "test.csv").write_text("smiles,y\nCCO,1\nethanol,2\n")
    words = f"pretrain {smiles_file} --output {folder / 'run'} --exclude {folder / 'test.csv'}"
    assert main([*words.split(), *SMALL.split(), "--data-note", "Public domain."]) == 0
    return folder / "run"


def test_the_command_writes_a_model_that_predicts_descriptors(written, capsys):
    model = MolAttn.from_pretrained(written)
    assert "MolLogP" in model.config.targets
    assert np.isfinite(model.predict(["CCO"])).all()
    metrics = json.loads((written / "metrics.json").read_text())
    assert metrics["validation"]["descriptors"]["r2"].keys() == {*model.config.targets}
    molecules = metrics["molecules"]
    assert molecules["training"] + molecules["validation"] == molecules["kept"]
    assert molecules["excluded_skipped"] == {"name": 1}
    card = (written / "model" / "README.md").read_text()
    for text in ("Public domain.", molecules["files"][0]["sha256"], "--width 8"):
        assert text in card
    assert str(written.parent) not in card
    assert main(["pretrain", "--resume", str(written)]) == 0
    assert "nothing to resume" in capsys.readouterr().out


@pytest.fixture(scope="module")
def columns(smiles_file, tmp_path_factory):
    """A table of molecules with 20 columns, functions of three numbers of each."""
    smiles = smiles_file.read_text().split()
    known = np.array([[len(one), one.count("C"), one.count("c")] for one in smiles])
    mixed = np.random.default_rng(0).normal(size=(3, 20))
    table = pd.DataFrame(known @ mixed + 1000.0).add_prefix("emb_")
    table.insert(0, "smiles", smiles)
    table["constant"] = 1.0
    path = tmp_path_factory.mktemp("columns") / "t.csv"
    table.to_csv(path, index=False)
    return path, smiles


def test_columns_are_learned_and_give_a_projection(columns, tmp_path, capsys, monkeypatch):
    path, smiles = columns
    learned, projection = [], run_module._projection
    monkeypatch.setattr(
        run_module,
        "_projection",
        lambda weight, seed: learned.append(weight) or projection(weight, seed),
    )
    words = f"pretrain {path} --pretraining-columns emb_* --targets columns {SMALL} --epochs 40 "
    words += f"--norm layer --learning-rate 0.01 --output {tmp_path / 'run'}"
    assert main(words.replace("--epochs 1 ", "").split()) == 0
    assert "R² of columns" in capsys.readouterr().out
    scores = json.loads((tmp_path / "run" / "metrics.json").read_text())["validation"]
    assert list(scores) == ["columns"]  # nothing else was learned
    assert scores["columns"]["mean_r2"] > 0.3
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    for text in ("--pretraining-columns 'emb_*'", "Embeddings are projected", "did not learn"):
        assert text in card
    # Embeddings are as far apart as the columns that are predicted.
    model = MolAttn.from_pretrained(tmp_path / "run")
    batch = model.collate([model.featurize(one) for one in smiles[:10]])
    vectors = model.nets[0].encode(batch).detach()
    predicted = torch.cdist(vectors @ learned[0].T, vectors @ learned[0].T)
    embedding = torch.from_numpy(model.embed(smiles[:10]))
    torch.testing.assert_close(torch.cdist(embedding, embedding), predicted, rtol=1e-3, atol=1e-4)
    # A model that starts from it has its projection, for each of two molecules.
    table = tmp_path / "pairs.csv"
    rows = [f"{one},{other},{len(one)}" for one, other in pairwise(smiles)]
    table.write_text("\n".join(["smiles,second,y", *rows]) + "\n")
    options = {"target_columns": ["y"], "partner_column": "second", "epochs": 1, "bootstrap": 0}
    options |= {"init_from": str(tmp_path / "run"), "device": "cpu", "baselines": False}
    tuned = train(TrainConfig.from_options(str(table), {**options, "learning_rate": 1e-9})).model
    pair = tuned.embed(smiles[:1], partners=smiles[1:2])
    np.testing.assert_allclose(pair[0], embedding[:2].ravel(), atol=1e-4)
    # One that learns other targets, or fewer columns, has none.
    for more in ("--targets descriptors", "--pretraining-columns emb_1 constant"):
        words = f"pretrain {path} {SMALL} {more} --output {tmp_path / 'other'} --overwrite"
        assert main(words.split()) == 0
        assert MolAttn.from_pretrained(tmp_path / "other").nets[0].projection is None
    shown = capsys.readouterr().out
    assert "columns not used, as constant or empty: 'constant'" in shown
    assert "1 columns, fewer than the 16 dimensions" in shown


def test_a_run_is_resumed_from_its_prepared_molecules(
    written, smiles_file, tmp_path, monkeypatch, capsys
):
    def interrupted(path, *rest):
        if path.name.endswith("_00002.arrow"):
            raise KeyboardInterrupt
        return write(path, *rest)

    write, output = prepare.write_shard, tmp_path / "run"
    monkeypatch.setattr(prepare, "SHARD_ROWS", 16)
    monkeypatch.setattr(prepare, "_BLOCK_ROWS", 16)
    words = f"pretrain {smiles_file} --output {output} --exclude {written.parent / 'test.csv'}"
    words = [*words.split(), *SMALL.split(), "--data-note", "Public domain."]
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "write_shard", interrupted)
        assert main(words) == 130
    assert f"to resume: molattn pretrain --resume {output}" in capsys.readouterr().err
    assert main(words) == 2  # it does not start anew unasked
    assert main(["pretrain", "--resume", str(output)]) == 0
    assert "resuming after 32 rows" in capsys.readouterr().out
    one, two = ((run / "model" / WEIGHTS_FILE).read_bytes() for run in (output, written))
    assert one == two


@pytest.mark.parametrize(
    "words, named",
    [
        ("few.smi --output o", "at least 20"),
        ("some.smi --output o --targets columns", "--pretraining-columns"),
        ("stores/typo --output o --targets columns", "stores/typo"),
        ("some.smi --pretraining-columns x --targets bonds", "--targets"),
    ],
)
def test_a_wrong_command_is_refused_in_one_line(words, named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.smi").write_text("CCO\nCCC\n")
    (tmp_path / "some.smi").write_text("\n".join("C" * n + "O" for n in range(30)))
    assert main(["pretrain", *words.split()]) == 2
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1
    assert not (tmp_path / "o").exists()
