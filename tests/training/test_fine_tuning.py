"""Trainings that start from a trained model."""

import copy
import io
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from rich.console import Console

from molattn.config import (
    DataConfig,
    FineTuningConfig,
    GaussianProcessConfig,
    NetworkConfig,
    SupervisedConfig,
    TrainConfig,
)
from molattn.data.splitting import split_rows
from molattn.errors import InputError
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.target_transform import LogTransform
from molattn.task import Task
from molattn.training.resolve import load_pretrained, resolve
from molattn.training.run import read_rows, train

from .fitting import interrupted

pytestmark = pytest.mark.usefixtures("without_figures")

SMALL = NetworkConfig(
    width=8, heads=2, layers=2, edge_width=4, dropout=0.3, norm="layer", graphs=("pairs",)
)
QUICK = SupervisedConfig(epochs=2, batch_size=8, device="cpu", learning_rate=0.01)
EVEN = replace(QUICK, epochs=1, warmup=0.0, weight_decay=0.0, schedule="constant")
GRAMS = Task("y", unit="mg")
SMILES = ["CCO", "CCCCO", "CC"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Chains with a number and a class: 18 training rows, of which an epoch has three steps."""
    path = tmp_path_factory.mktemp("data") / "t.csv"
    parts = ["train"] * 18 + ["val"] * 4 + ["test"] * 4
    rows = "".join(f"{'C' * n}O,{n}.5,{n % 2},{part}\n" for n, part in enumerate(parts, 1))
    path.write_text(f"smiles,y,z,part\n{rows}")
    return path


def saved(folder, *, members=1, seed=9, tasks=(GRAMS,), network=SMALL, **options):
    torch.manual_seed(seed)
    model = MolAttn(MolAttnConfig(tasks, network, members=members, **options))
    model.set_target_scaling([3.0], [2.0])
    model.save_pretrained(folder)
    return model.eval()


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrained") / "model"
    return saved(folder), folder


def config_of(table, init_from, targets=("y",), training=QUICK, freeze="none", **fine_tuning):
    data = DataConfig(target_columns=targets, split_column="part", descriptors="none")
    options = FineTuningConfig(init_from=str(init_from), freeze=freeze, **fine_tuning)
    config = TrainConfig(str(table), data, NetworkConfig(), training, fine_tuning=options)
    return replace(config, gaussian_process=GaussianProcessConfig(predictor="network"))


def run_of(*given, **options):
    """Return a run and its log."""
    console = Console(file=io.StringIO(), width=300)
    return train(config_of(*given, **options), console), console.file.getvalue()


def changed(before, after):
    """The parts of a network with weights that differ, also in shape."""
    others = after.state_dict()
    return {
        name.split(".")[0]
        for name, value in before.state_dict().items()
        if name not in others or not torch.equal(value, others[name])
    }


def test_a_model_of_the_same_tasks_starts_with_its_head(table, pretrained):
    """Without a learning rate the run ends as the model that it started from."""
    model, folder = pretrained
    run, log = run_of(table, folder, backbone_lr_scale=0.0)
    assert run.config.network.width == 8
    assert not changed(model, run.model)
    np.testing.assert_array_equal(run.model.predict(SMILES), model.predict(SMILES))
    assert "(with its head)" in log
    kilos = config_of(table, folder, backbone_lr_scale=0.0)
    kilos = replace(kilos, data=replace(kilos.data, target_units=("kg",)))
    assert changed(model.nets[0], train(kilos).model.nets[0]) == {"head"}
    run, log = run_of(table, folder, ("z",), backbone_lr_scale=0.0)
    assert changed(model.nets[0], run.model.nets[0]) == {"head"}
    assert "(new head)" in log


def test_the_head_is_kept_if_it_reads_the_same(tmp_path):
    old = saved(tmp_path / "old", network=SMALL, partner_column="solvent", tasks=(Task("y"),))
    rows = "".join(f"{'C' * n}O,O,{n}.5\n" for n in range(1, 20))
    (tmp_path / "t.csv").write_text(f"smiles,other,y\n{rows}")
    for more, keeps in (({}, True), ({"morgan_counts": 16}, False), ({"head": "fourier"}, False)):
        options = {"target_columns": "y", "partner_column": "other", **more}
        options |= {"descriptors": "none", "init_from": str(tmp_path / "old"), "epochs": 1}
        options |= {"backbone_lr_scale": 0.0, "predictor": "network", "device": "cpu"}
        model = train(TrainConfig.from_options(str(tmp_path / "t.csv"), options)).model
        assert ("head" not in changed(old.nets[0], model.nets[0])) == keeps


def test_a_kept_head_keeps_its_transform(table, tmp_path):
    model = saved(tmp_path / "model")
    model.set_target_scaling([1.0], [2.0], (LogTransform(),))
    model.save_pretrained(tmp_path / "model")
    config = config_of(table, tmp_path / "model")
    again = train(config).model
    assert again.config.target_transforms == (LogTransform(),)
    assert torch.equal(again.target_mean, model.target_mean)
    data = replace(config.data, target_transform=("none",))
    assert train(replace(config, data=data)).model.target_mean != model.target_mean
    path = tmp_path / "zero.csv"
    path.write_text(table.read_text().replace(",2.5,", ",0,"))
    assert train(replace(config, file=str(path))).model.target_mean != model.target_mean


def watch(monkeypatch, note):
    """Note something of the network in each training step."""
    forward = MolAttn.forward

    def watched(self, *rest):
        if self.training:
            note(self.nets[0])
        return forward(self, *rest)

    monkeypatch.setattr(MolAttn, "forward", watched)


@pytest.mark.parametrize(
    "freeze, frozen",
    [
        (1, ("atom_embedding", "pair_embedding", "encoder.blocks.0.")),
        ("encoder", ("atom_embedding", "pair_embedding", "encoder.")),
    ],
)
def test_what_is_frozen_stays_without_dropout_and_the_rest_learns(
    table, pretrained, monkeypatch, freeze, frozen
):
    model, folder = pretrained
    modes = set()

    def note(net):
        first, second = net.encoder.blocks
        modes.add((first.training, second.training, net.head.training))

    watch(monkeypatch, note)
    run, _ = run_of(table, folder, freeze=freeze)
    after = run.model.nets[0].state_dict()
    for name, weight in model.nets[0].named_parameters():
        assert torch.equal(weight, after[name]) == name.startswith(frozen), name
    assert all(weight.requires_grad for weight in run.model.parameters())
    if freeze == 1:  # of the whole encoder, the output is computed once
        assert modes == {(False, True, True)}


def test_few_labels_of_classes_freeze_the_encoder(table, pretrained, monkeypatch):
    model, folder = pretrained
    frozen = {"atom_embedding", "pair_embedding", "encoder"}
    run, log = run_of(table, folder, ("z",), freeze="auto")
    assert changed(model.nets[0], run.model.nets[0]) == {"readout", "head"}
    assert run.histories[0].frozen_weights == sum(
        weight.numel()
        for name, weight in model.nets[0].named_parameters()
        if name.split(".")[0] in frozen
    )
    assert "weights frozen" in log
    for most, targets, options in (
        (2500, ("z",), {"freeze": "none"}),
        (2500, ("y", "z"), {"freeze": "auto"}),
        (2500, ("z",), {"freeze": "auto", "backbone_lr_scale": 1.0}),
        (25, ("z",), {"freeze": "auto"}),
    ):
        monkeypatch.setattr("molattn.training.resolve._FEW_LABELS", most)
        config, base = load_pretrained(config_of(table, folder, targets, **options))
        rows = read_rows(config)
        split = split_rows(rows, config.data, 0)
        assert resolve(config, rows, split, base).fine_tuning.freeze == "none"


def test_pretrained_weights_learn_more_slowly(table, pretrained):
    """The first step of Adam is the learning rate, whatever the gradient."""
    model, folder = pretrained
    steps = replace(EVEN, batch_size=18)
    for targets, options in ((("z",), {"head_steps": 0}), (("y",), {"head_steps": 9})):
        run, _ = run_of(table, folder, targets, steps, backbone_lr_scale=0.1, **options)
        old, new = (m.nets[0].encoder.state_dict() for m in (model, run.model))
        step = max(float((new[key] - old[key]).abs().max()) for key in old)
        assert step == pytest.approx(0.001, rel=0.01)
        assert run.histories[0].curve[0].learning_rate == pytest.approx(0.01)


@pytest.mark.parametrize("epochs, head_steps, alone", [(2, 1, 1), (2, 9, 3), (1, 9, 1)])
def test_a_new_head_learns_alone_at_first(
    table, pretrained, monkeypatch, epochs, head_steps, alone
):
    """For as many of three steps an epoch, at most half of all."""
    steps = []
    watch(monkeypatch, lambda net: steps.append(next(net.encoder.parameters()).requires_grad))
    _, log = run_of(
        table, pretrained[1], ("z",), replace(EVEN, epochs=epochs), head_steps=head_steps
    )
    assert steps == [False] * alone + [True] * (3 * epochs - alone)
    assert "first only the head is trained" in log


def test_patience_while_the_head_learns_alone(table, pretrained):
    """Of 30 steps, 3 an epoch, the head has 15; then patience is counted."""
    still = replace(EVEN, epochs=10, learning_rate=1e-30, patience=1)
    run, log = run_of(table, pretrained[1], ("z",), still)
    assert len(run.histories[0].curve) == 7
    assert "Stopped early after epoch 7 of 10: no improvement (--patience 1)" in log


def test_members_start_from_one_model_or_each_from_its_own(table, pretrained, tmp_path):
    model, folder = pretrained
    two = replace(QUICK, epochs=1, ensemble=2)
    run, _ = run_of(table, folder, ("z",), two, backbone_lr_scale=0.0)
    assert all(changed(model.nets[0], net) == {"head"} for net in run.model.nets)
    assert changed(run.model.nets[0].head, run.model.nets[1].head)
    pair = saved(tmp_path / "model", members=2)
    run, _ = run_of(table, tmp_path, ("y",), replace(two, ensemble=3), backbone_lr_scale=0.0)
    for net, old in zip(run.model.nets, [*pair.nets, pair.nets[0]], strict=True):
        assert not changed(old, net)


@pytest.mark.parametrize("target, freeze", [("y", 1), ("z", "encoder")])
def test_it_is_resumed_bit_for_bit_and_refuses_another_model(
    table, tmp_path, monkeypatch, target, freeze
):
    saved(tmp_path / "model")
    training = replace(QUICK, ensemble=2, epochs=3)
    config = config_of(table, tmp_path, (target,), training, freeze=freeze)
    whole = train(config)
    folder = tmp_path / "run"
    interrupted(monkeypatch, config, folder, 14)  # of 9 for each member
    assert not changed(train(config, folder=folder).model, whole.model)
    saved(tmp_path / "model", seed=10)
    with pytest.raises(InputError, match="changed since"):
        train(config, folder=folder)


def test_a_model_that_has_seen_the_test_molecules_is_reported(table, pretrained, tmp_path):
    _, log = run_of(table, pretrained[1], training=replace(QUICK, epochs=1))
    assert "not checked: the model has no fingerprints" in log
    known = copy.deepcopy(pretrained[0])
    known.calibrate(SMILES, np.zeros((3, 1)), ["CCO", "C" * 26 + "O", "BrBr"])
    known.save_pretrained(tmp_path / "model")
    run, log = run_of(table, tmp_path, training=replace(QUICK, epochs=1))
    assert "1 of 4 test molecules" in log
    assert run.leakage.pretrained_test == 1
    # What the run took from the model is in its options.
    assert run.config.network == replace(SMALL, dropout=NetworkConfig().dropout)


def test_the_network_is_that_of_the_model_except_for_its_own_options(table, pretrained, tmp_path):
    own = {f.name for f in fields(NetworkConfig) if not f.metadata.get("from_pretrained", True)}
    assert own == {"radius", "dropout", "head", "head_dropout", "attention_dropout"}
    config = config_of(table, pretrained[1])
    given = NetworkConfig(dropout=0.5, head="fourier")
    found, weights = load_pretrained(replace(config, network=given))
    assert (
        weights.inherited
        == " with its width 8, heads 2, layers 2, edge_width 4, graphs pairs, norm layer"
    )
    assert found.network == replace(SMALL, dropout=0.5, head="fourier")
    packaged, weights = load_pretrained(config_of(table, "base"))
    assert packaged.network.layer_options == ()
    assert weights.inherited == " with its graphs pairs, norm layer"
    assert "--layer-options" not in packaged.command_line("train")
    without = NetworkConfig(layer_options=("attn_bias=null",))  # as base is
    assert load_pretrained(replace(config_of(table, "base"), network=without))[0] == packaged
    process = GaussianProcessConfig(predictor="gaussian_process")
    replace(packaged, gaussian_process=process, training=SupervisedConfig())  # is no error
    assert load_pretrained(found)[0] == found
    for option, value in (("edge_width", 8), ("heads", 4), ("norm", "batch")):
        with pytest.raises(InputError) as error:
            load_pretrained(replace(config, network=NetworkConfig(**{option: value})))
        assert error.value.option == option
    featurizer = replace(MolAttnConfig("y").featurizer, max_distance=6)
    MolAttn(MolAttnConfig("y", SMALL, featurizer)).save_pretrained(tmp_path)
    for broken in (
        config_of(table, pretrained[1], freeze=3),
        config_of(table, tmp_path),
        config_of(table, tmp_path / "nowhere"),
    ):
        with pytest.raises(InputError):
            train(broken)


def test_auto_is_base_if_the_network_fits(table, tmp_path, monkeypatch):
    monkeypatch.setattr("molattn.model.artefact.PACKAGED", tmp_path)
    plain = config_of(table, "auto")
    assert load_pretrained(plain)[0].fine_tuning.init_from == "none"  # there is no base
    saved(tmp_path / "base")
    found, _ = load_pretrained(plain)
    assert found.fine_tuning.init_from == "base"
    assert load_pretrained(found)[0] == found
    wider = replace(plain, network=NetworkConfig(width=24))
    assert load_pretrained(wider)[0].fine_tuning.init_from == "none"
    assert load_pretrained(plain, ["width"])[0].fine_tuning.init_from == "none"
    assert load_pretrained(plain, ["dropout"])[0].fine_tuning.init_from == "base"
    new = config_of(table, "none")
    assert load_pretrained(new) == (new, None)
