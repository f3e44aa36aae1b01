"""Trainings that begin with a trained model."""

import copy
import io
import json
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.cli import main
from molattn.config import (
    DataConfig,
    FineTuningConfig,
    GaussianProcessConfig,
    NetworkConfig,
    SupervisedConfig,
    TrainConfig,
)
from molattn.config.yaml_file import read_config_file
from molattn.errors import InputError
from molattn.model.artefact import CONFIG_FILE, WEIGHTS_FILE
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.network import Network
from molattn.task import Task
from molattn.training.fine_tuning import PretrainedWeights, load_pretrained
from molattn.training.run import train
from molattn.training.run_folder import RESULT_FILE

pytestmark = pytest.mark.usefixtures("without_figures")

SMALL = NetworkConfig(width=8, heads=2, layers=2, edge_width=4, dropout=0.3)
QUICK = SupervisedConfig(epochs=2, batch_size=8, device="cpu", learning_rate=0.01)
SHARED = ("atom_embedding", "pair_embedding", "encoder", "readout")
SMILES = ["CCO", "CCCCO", "CC"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "t.csv"
    parts = ["train"] * 18 + ["val"] * 4 + ["test"] * 4
    rows = "".join(f"{'C' * n}O,{n}.5,{n % 2},{part}\n" for n, part in enumerate(parts, 1))
    path.write_text(f"smiles,y,z,part\n{rows}")
    return path


def saved(folder, *, members=1, seed=9):
    config = MolAttnConfig((Task("y", unit="mg"),), SMALL, members=members)
    torch.manual_seed(seed)
    model = MolAttn(config)
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
    return TrainConfig(str(table), data, NetworkConfig(), training, fine_tuning=options)


def changed(before, after):
    """Names of the weights that differ, in shape too, or that the second model lacks."""
    others = after.state_dict()
    return {
        name
        for name, value in before.state_dict().items()
        if name not in others or not torch.equal(value, others[name])
    }


def part_of(name):
    return name.split(".")[0]


def test_a_model_of_the_same_tasks_is_the_beginning_itself(table, pretrained):
    """At no learning rate the run ends as the very model that it began with."""
    model, folder = pretrained
    shown = io.StringIO()
    config = config_of(table, folder, backbone_lr_scale=0.0)
    config = replace(config, gaussian_process=GaussianProcessConfig(predictor="network"))
    run = train(config, Console(file=shown, width=200))
    assert run.config.network.width == 8
    assert not changed(model, run.model)
    np.testing.assert_array_equal(run.model.predict(SMILES), model.predict(SMILES))
    assert "(with its head)" in shown.getvalue()


def test_other_tasks_get_a_new_head_and_their_own_scaling(table, pretrained):
    model, folder = pretrained
    shown = io.StringIO()
    config = config_of(table, folder, ("z",), backbone_lr_scale=0.0)
    run = train(config, Console(file=shown, width=200))
    words = "with a new head 'fourier' (before: 'both' for 'y' (regression))"
    assert words in shown.getvalue().replace("\n", "")
    assert run.model.config.tasks[0].kind == "binary"
    assert {part_of(name) for name in changed(model.nets[0], run.model.nets[0])} == {"head"}
    units = config_of(table, folder, backbone_lr_scale=0.0)
    units = replace(units, data=replace(units.data, target_units=("kg",)))
    assert {part_of(name) for name in changed(model.nets[0], train(units).model.nets[0])} == {
        "head"
    }


@pytest.mark.parametrize(
    "freeze, frozen",
    [
        ("none", ()),
        ("embeddings", ("atom_embedding", "pair_embedding")),
        (1, ("atom_embedding", "pair_embedding", "encoder.blocks.0.")),
        ("encoder", ("atom_embedding", "pair_embedding", "encoder.")),
    ],
)
def test_what_is_frozen_stays_and_the_rest_learns(table, pretrained, freeze, frozen):
    model, folder = pretrained
    run = train(config_of(table, folder, freeze=freeze))
    moved = changed(model.nets[0], run.model.nets[0])
    learned = {name for name, _ in model.nets[0].named_parameters()}
    still = learned - moved
    assert {name for name in learned if name.startswith(frozen)} <= still
    # A code that no training molecule has teaches its embedding nothing but decay.
    assert not {name for name in still if not name.startswith(frozen)}
    assert all(weight.requires_grad for weight in run.model.parameters())


def encoder_is_frozen(run, model):
    """Whether embeddings and encoder are those of the pretrained model, and the rest is not."""
    frozen = ("atom_embedding", "pair_embedding", "encoder.")
    moved = changed(model.nets[0], run.model.nets[0])
    assert any(name.startswith("readout") for name in moved)
    return not any(name.startswith(frozen) for name in moved)


def test_few_labels_of_classes_leave_the_encoder_as_it_is(table, pretrained, monkeypatch):
    model, folder = pretrained
    console = Console(file=io.StringIO(), width=400)
    auto = config_of(table, folder, ("z",), freeze="auto")
    run = train(auto, console)
    assert encoder_is_frozen(run, model)
    assert run.histories[0].frozen_weights == sum(
        weight.numel()
        for name, weight in model.nets[0].named_parameters()
        if part_of(name) in ("atom_embedding", "pair_embedding", "encoder")
    )
    said = console.file.getvalue()
    assert "weights frozen, as there are only classes and few labels (--freeze none" in said
    assert not encoder_is_frozen(train(config_of(table, folder, ("z",))), model)
    assert not encoder_is_frozen(train(config_of(table, folder, ("y", "z"), freeze="auto")), model)
    scaled = config_of(table, folder, ("z",), freeze="auto", backbone_lr_scale=1.0)
    assert not encoder_is_frozen(train(scaled), model)
    monkeypatch.setattr("molattn.training.run._FEW_LABELS", 26)  # of the table, not of a fold
    assert encoder_is_frozen(train(auto), model)
    monkeypatch.setattr("molattn.training.run._FEW_LABELS", 25)
    assert not encoder_is_frozen(train(auto), model)


def test_a_frozen_encoder_computes_each_molecule_once(table, pretrained, monkeypatch):
    """What it learns is the same as if it encoded the molecules of every batch."""
    _, folder = pretrained
    encode, atoms = Network.encode_atoms, []

    def counted(self, batch):
        found = encode(self, batch)
        if any(weight.requires_grad is False for weight in self.encoder.parameters()):
            atoms.append(len(found[0]))
        return found

    monkeypatch.setattr(Network, "encode_atoms", counted)
    config = config_of(table, folder, ("z",), freeze="encoder")
    once = train(config).model
    learned = 18 * 19 // 2 + 18  # atoms of the training rows, and four validation rows follow
    assert sum(atoms) == learned + sum(range(19, 23)) + 4
    atoms.clear()
    monkeypatch.setattr("molattn.training.batches._MOST_KEPT", 4 * SMALL.width * learned - 1)
    each = train(config).model
    assert sum(atoms) > 2 * learned
    numbers = [model.predict(SMILES) for model in (once, each)]
    np.testing.assert_allclose(*numbers, rtol=1e-5)


def test_what_is_learned_with_its_head_goes_on_whole(table, tmp_path):
    """A head that is inherited fits the encoder already; both learn."""
    config = MolAttnConfig((Task("z", "binary", classes=("0", "1")),), SMALL)
    model = MolAttn(config)
    model.save_pretrained(tmp_path / "model")
    run = train(config_of(table, tmp_path / "model", ("z",), freeze="auto"))
    assert not encoder_is_frozen(run, model)


def test_what_is_frozen_leaves_out_dropout_in_every_step(table, pretrained, monkeypatch):
    _, folder = pretrained
    forward, modes = MolAttn.forward, []

    def watched(self, *rest):
        if self.training:
            (net,) = self.nets
            blocks = [block.training for block in net.encoder.blocks]
            modes.append((*blocks, net.encoder.blocks[0].dropout.training, net.head.training))
        return forward(self, *rest)

    monkeypatch.setattr(MolAttn, "forward", watched)
    train(config_of(table, folder, freeze=1))
    assert len(modes) == 6  # 2 epochs of 3 steps
    assert set(modes) == {(False, True, False, True)}


def largest_step(before, after, name):
    old, new = (m.nets[0].get_submodule(name).state_dict() for m in (before, after))
    return max(float((new[key] - old[key]).abs().max()) for key in old)


EVEN = replace(QUICK, epochs=1, warmup=0.0, weight_decay=0.0, schedule="constant")


def test_the_pretrained_part_may_learn_more_slowly(table, pretrained):
    """The first step of Adam is the learning rate, whatever the gradient."""
    model, folder = pretrained
    steps = replace(EVEN, batch_size=18)
    run = train(config_of(table, folder, ("z",), steps, backbone_lr_scale=0.1, head_steps=0))
    for name in ("atom_embedding", "encoder"):
        assert largest_step(model, run.model, name) == pytest.approx(0.001, rel=0.01)
    assert run.histories[0].epochs[0].learning_rate == pytest.approx(0.01)


def learns(monkeypatch):
    """Whether the encoder learns, at each step of the trainings to come."""
    steps, forward = [], MolAttn.forward

    def watched(self, *rest):
        if self.training:
            steps.append(next(self.nets[0].encoder.parameters()).requires_grad)
        return forward(self, *rest)

    monkeypatch.setattr(MolAttn, "forward", watched)
    return steps


@pytest.mark.parametrize(
    "epochs, head_steps, alone", [(2, 0, 0), (2, 1, 1), (2, 2, 2), (2, 9, 3), (1, 9, 1)]
)
def test_a_new_head_learns_alone_at_first(
    table, pretrained, monkeypatch, epochs, head_steps, alone
):
    """For so many of three steps an epoch, at most half of all."""
    model, folder = pretrained
    steps, shown = learns(monkeypatch), io.StringIO()
    options = {"backbone_lr_scale": 0.1, "head_steps": head_steps}
    config = config_of(table, folder, ("z",), replace(EVEN, epochs=epochs), **options)
    run = train(config, Console(file=shown, width=200))
    assert steps == [False] * alone + [True] * (3 * epochs - alone)
    assert ("first only the head is trained" in shown.getvalue().replace("\n", "")) == (alone > 0)
    assert largest_step(model, run.model, "encoder") >= 0.00099


def test_patience_waits_for_the_pretrained_part(table, pretrained, monkeypatch):
    """Of 30 steps, 3 an epoch, the head has 15; without progress one more epoch is the last."""
    steps = learns(monkeypatch)
    still = replace(EVEN, epochs=10, learning_rate=1e-30, patience=1)
    shown = io.StringIO()
    config = config_of(table, pretrained[1], ("z",), still)
    run = train(config, Console(file=shown, width=200))
    assert len(run.histories[0].epochs) == 6
    assert "Stopped early after epoch 6 of 10: no improvement (--patience 1)" in shown.getvalue()
    assert steps == [False] * 15 + [True] * 3


def test_a_training_that_is_stopped_while_the_head_learns_says_so(table, pretrained):
    shown = io.StringIO()
    config = config_of(table, pretrained[1], ("z",), replace(QUICK, max_hours=1e-9))
    train(config, Console(file=shown, width=200))
    assert "Stopped early after epoch 1 of 2: time limit reached (--max-hours)" in shown.getvalue()
    assert "Stopped before the pretrained weights were trained" in shown.getvalue()


def test_a_head_that_is_taken_over_does_not_learn_alone(table, pretrained):
    model, folder = pretrained
    steps = replace(EVEN, batch_size=18)
    run = train(config_of(table, folder, training=steps, backbone_lr_scale=0.1, head_steps=9))
    assert largest_step(model, run.model, "encoder") == pytest.approx(0.001, rel=0.01)


@pytest.mark.parametrize("options", [{"layer": "mat"}, {"pairs": "bonds", "edge_value": False}])
def test_a_network_of_another_kind_is_taken_over_whole(table, tmp_path, options):
    network = replace(SMALL, edge_width=16, **options)
    model = MolAttn(MolAttnConfig((Task("y"),), network))
    model.save_pretrained(tmp_path)
    steps = replace(QUICK, epochs=1)
    run = train(config_of(table, tmp_path, ("z",), steps, backbone_lr_scale=0.0))
    assert {part_of(name) for name in changed(model.nets[0], run.model.nets[0])} == {"head"}
    for option, value in options.items():
        assert getattr(run.model.config.network, option) == value


def test_members_begin_with_one_model_or_each_with_its_own(table, pretrained, tmp_path):
    model, folder = pretrained
    two = replace(QUICK, epochs=1, ensemble=2)
    still = {"backbone_lr_scale": 0.0}
    run = train(config_of(table, folder, ("z",), two, **still))
    for net in run.model.nets:
        assert {part_of(name) for name in changed(model.nets[0], net)} == {"head"}
    heads = [net.get_submodule("head") for net in run.model.nets]
    assert changed(*heads)
    several = saved(tmp_path / "model", members=2)
    run = train(config_of(table, tmp_path, ("y",), replace(two, ensemble=3), **still))
    for net, old in zip(run.model.nets, [*several.nets, several.nets[0]], strict=True):
        assert not changed(old, net)


@pytest.mark.parametrize("freeze", [1, "encoder"])
@pytest.mark.parametrize("target", ["y", "z"])  # the head is taken over, or first learns alone
def test_it_goes_on_bit_for_bit_and_refuses_another_model_by_name(
    table, tmp_path, monkeypatch, target, freeze
):
    saved(tmp_path / "model")
    training = replace(QUICK, ensemble=2, epochs=3)
    config = config_of(table, tmp_path, (target,), training, freeze=freeze, backbone_lr_scale=0.5)
    whole = train(config)
    compute, steps = MolAttn.outputs_and_embedding, 0

    def killed(self, *rest):
        nonlocal steps
        steps += self.training
        if steps == 14:  # of 9 for each member
            raise KeyboardInterrupt
        return compute(self, *rest)

    folder = tmp_path / "run"
    folder.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(MolAttn, "outputs_and_embedding", killed)
        with pytest.raises(KeyboardInterrupt):
            train(config, folder=folder)
    assert not changed(train(config, folder=folder).model, whole.model)
    saved(tmp_path / "model", seed=10)
    with pytest.raises(InputError, match=r"init_from: the model .* has changed since"):
        train(config, folder=folder)


def test_a_model_that_has_seen_the_test_is_told(table, pretrained, tmp_path, capsys):
    once, shown = replace(QUICK, epochs=1), io.StringIO()
    unknown = train(config_of(table, pretrained[1], training=once), Console(file=shown, width=200))
    assert unknown.leakage.pretrained_test is None
    told = f"leakage from --init-from {pretrained[1]} not checked: the model has no fingerprints"
    assert told in shown.getvalue()
    knows = copy.deepcopy(pretrained[0])
    knows.calibrate(SMILES, np.zeros((3, 1)), ["CCO", "C" * 26 + "O", "BrBr"])
    knows.save_pretrained(tmp_path / "model")
    words = f"{table} --target-columns y --split-column part --epochs 1 --no-baselines".split()
    words += f"--bootstrap 0 --init-from {tmp_path} --device cpu --output {tmp_path}/run".split()
    assert main(["train", *words]) == 0
    told = (
        "1 of 4 test molecules have the same fingerprint as a molecule that the --init-from model"
    )
    assert told in capsys.readouterr().out  # of longer and shorter chains too
    metrics = json.loads((tmp_path / "run" / RESULT_FILE).read_text())
    assert metrics["leakage"]["pretrained_test"] == 1
    assert told in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("folds", ["", " --folds 2"])
def test_the_initial_model_is_chosen_and_read_once(table, pretrained, tmp_path, monkeypatch, folds):
    knows = copy.deepcopy(pretrained[0])
    knows.calibrate(SMILES, np.zeros((3, 1)), ["CCO", "BrBr"])
    knows.save_pretrained(tmp_path / "mine")
    counts = Counter()

    def count(owner, name):
        function = getattr(owner, name)

        def counted(*args, **options):
            counts[name] += 1
            return function(*args, **options)

        monkeypatch.setattr(owner, name, counted)

    for owner, name in ((MolAttn, "from_files"), (FingerprintIndex, "from_bytes")):
        count(owner, name)
    words = f"{table} --target-columns y --epochs 1 --no-baselines --bootstrap 0 --ensemble 2"
    words += f" --init-from {tmp_path}/mine --device cpu --output {tmp_path}/run{folds}"
    assert main(["train", *words.split()]) == 0
    assert counts == {"from_files": 1, "from_bytes": 1}


def test_options_that_weights_do_not_depend_on_say_so_themselves(monkeypatch, table, pretrained):
    """Adding one to the network is all that it takes; no list repeats it."""
    own = {f.name for f in fields(NetworkConfig) if not f.metadata.get("from_pretrained", True)}
    assert own == {"radius", "dropout", "head", "head_dropout", "attention_dropout", "partner"}
    config = replace(config_of(table, pretrained[1]), network=NetworkConfig(heads=4))
    with pytest.raises(InputError, match="heads: got 4"):
        load_pretrained(config)
    (heads,) = (f for f in fields(NetworkConfig) if f.name == "heads")
    monkeypatch.setattr(heads, "metadata", {"from_pretrained": False})
    assert load_pretrained(config)[0].network == replace(SMALL, heads=4, dropout=0.1)


def test_the_command_takes_a_run_and_its_config_repeats_it(table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "mine" / "model")
    words = f"{table} --target-columns y --split-column part --epochs 1 --no-baselines".split()
    words += "--bootstrap 0 --init-from mine --freeze 1 --ensemble 2 --device cpu".split()
    assert main(["train", *words, "--output", "one"]) == 0
    assert "Starting from" in capsys.readouterr().out
    written = TrainConfig.from_dict(read_config_file(Path("one", "config.yaml")))
    assert written.network == replace(SMALL, dropout=NetworkConfig().dropout)
    assert written.fine_tuning == FineTuningConfig(str(tmp_path / "mine"), 1)
    assert main(["train", "--config", "one/config.yaml", "--output", "two"]) == 0
    one, two = (Path(name, "model", WEIGHTS_FILE).read_bytes() for name in ("one", "two"))
    assert one == two


@pytest.mark.parametrize("partner", ["concat", "cross_attention"])
def test_the_head_is_taken_over_where_it_reads_the_same(partner, tmp_path):
    both = MolAttnConfig("y", replace(SMALL, partner=partner), partner_column="solvent")
    old = MolAttn(both)
    old.save_pretrained(tmp_path)
    weights = PretrainedWeights.load(str(tmp_path), both.featurizer)
    same, alone, counted, other = (
        MolAttn(config)
        for config in (
            replace(both, partner_column="other"),
            replace(both, partner_column=None),
            replace(both, morgan_counts=16),
            replace(both, network=replace(both.network, head="fourier")),
        )
    )
    for model, taken in ((same, True), (alone, False), (counted, False), (other, False)):
        plan, message = weights.apply(model, 0, FineTuningConfig(str(tmp_path)))
        assert plan.keeps_scaling == taken
        assert ("(with its head)" in message) == taken
        own = {part_of(name) for name in changed(model.nets[0], old.nets[0])}
        assert own - {"cross"} == (set() if taken else {"head"})
        assert taken <= ("cross" not in own)


def test_options_of_another_network_are_refused_and_dropout_is_the_runs_own(table, pretrained):
    _, folder = pretrained
    config = config_of(table, folder)
    own = replace(config, network=NetworkConfig(dropout=0.5, layers=2))
    found, _ = load_pretrained(own)
    assert found.network == replace(SMALL, dropout=0.5)
    assert load_pretrained(found)[0] == found
    headed = replace(config, network=replace(config.network, head="fourier"))
    assert load_pretrained(headed)[0].network.head == "fourier"
    other = replace(config, network=NetworkConfig(edge_width=8))
    with pytest.raises(InputError, match=r"edge_width: got 8, but the model .* has 4"):
        load_pretrained(other)
    with pytest.raises(InputError, match=r"freeze: got 3, expected 0 to 2, the number of blocks"):
        train(config_of(table, folder, freeze=3))


def test_a_model_of_another_featurizer_is_refused(table, pretrained, tmp_path):
    _, folder = pretrained
    (tmp_path / "model").mkdir()
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        (tmp_path / "model" / name).write_bytes((folder / name).read_bytes())
    featurizer = replace(MolAttnConfig("y").featurizer, max_distance=6)
    config = MolAttnConfig("y", SMALL, featurizer)
    MolAttn(config).save_pretrained(tmp_path / "model")
    with pytest.raises(InputError, match="differs in max_distance: got 6, expected 10"):
        train(config_of(table, tmp_path))
    with pytest.raises(InputError, match="nowhere: no such folder"):
        train(config_of(table, tmp_path / "nowhere"))


def test_a_run_begins_with_base_if_its_network_is_the_same(table, tmp_path, monkeypatch):
    monkeypatch.setattr("molattn.model.artefact.PACKAGED", tmp_path)
    plain = config_of(table, "auto")
    assert load_pretrained(plain)[0].fine_tuning.init_from == "none"  # there is no base
    saved(tmp_path / "base")
    found, _ = load_pretrained(plain)
    assert found.fine_tuning.init_from == "base"
    assert found.network == replace(SMALL, dropout=NetworkConfig().dropout)
    assert load_pretrained(found)[0] == found
    wider = replace(plain, network=NetworkConfig(width=24))
    found, _ = load_pretrained(wider)
    assert (found.fine_tuning.init_from, found.network.width) == ("none", 24)
    assert load_pretrained(plain, ["width"])[0].fine_tuning.init_from == "none"
    assert load_pretrained(plain, ["dropout"])[0].fine_tuning.init_from == "base"
    new = config_of(table, "none")
    assert load_pretrained(new) == (new, None)


def test_a_run_without_a_model_to_begin_with_says_so(table):
    shown = io.StringIO()
    wider = replace(config_of(table, "auto"), network=SMALL)
    run = train(wider, Console(file=shown, width=200))
    assert run.config.fine_tuning.init_from == "none"
    assert "Starting from random weights" in shown.getvalue()
    with pytest.raises(InputError, match=r"freeze:? needs a pretrained model"):
        load_pretrained(replace(wider, fine_tuning=FineTuningConfig(freeze=1)))
