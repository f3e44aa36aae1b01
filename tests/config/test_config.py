import json
import re
from dataclasses import FrozenInstanceError, replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from molattn.config import (
    DataConfig,
    FineTuningConfig,
    GaussianProcessConfig,
    NetworkConfig,
    PredictConfig,
    ReportConfig,
    SupervisedConfig,
    TrainConfig,
    check_same_options,
)
from molattn.config.validation import option
from molattn.errors import InputError
from molattn.nn import check_network


@pytest.mark.parametrize(
    "kind, options, words",
    [
        (SupervisedConfig, {"epochs": 0}, ["--epochs", "0", "at least 1"]),
        (SupervisedConfig, {"ensemble": 0}, ["--ensemble", "0", "from 1 to 1000"]),
        (
            SupervisedConfig,
            {"ensemble": 3, "seed": 2**32 - 2},
            ["--seed + --ensemble: got 4294967294 + 3"],
        ),
        (SupervisedConfig, {"epochs": 2.5}, ["--epochs", "2.5", "whole number"]),
        (SupervisedConfig, {"patience": 0}, ["--patience", "at least 1"]),
        (SupervisedConfig, {"threads": 0}, ["--threads", "0"]),
        (SupervisedConfig, {"threads": 100_000}, ["--threads", "from 1 to 1024"]),
        (PredictConfig, {"threads": 100_000}, ["--threads", "from 1 to 1024"]),
        (NetworkConfig, {"layers": 10**9}, ["--layers", "from 0 to 1000"]),
        (SupervisedConfig, {"batch_size": True}, ["--batch-size", "True"]),
        (SupervisedConfig, {"learning_rate": 0.0}, ["--learning-rate", "positive"]),
        (SupervisedConfig, {"learning_rate": float("nan")}, ["--learning-rate", "nan"]),
        (SupervisedConfig, {"learning_rate": float("inf")}, ["--learning-rate", "inf"]),
        (SupervisedConfig, {"warmup": 1.5}, ["--warmup", "1.5", "0 to 1"]),
        (SupervisedConfig, {"weight_decay": -1.0}, ["--weight-decay", "-1.0"]),
        (SupervisedConfig, {"gradient_clip": "x"}, ["--gradient-clip", "'x'"]),
        (SupervisedConfig, {"seed": -1}, ["--seed", "-1"]),
        (SupervisedConfig, {"schedule": "sine"}, ["--schedule", "'sine'", "cosine"]),
        (SupervisedConfig, {"loss": "rmse"}, ["--loss", "'rmse'", "mse, mae, huber"]),
        (SupervisedConfig, {"huber_delta": 0.0}, ["--huber-delta", "positive"]),
        (SupervisedConfig, {"label_smoothing": 1.0}, ["--label-smoothing", "below 1"]),
        (SupervisedConfig, {"precision": "fp8"}, ["--precision", "'fp8'", "bf16"]),
        (SupervisedConfig, {"checkpoint_steps": -1}, ["--checkpoint-steps", "-1"]),
        (
            SupervisedConfig,
            {"balance_classes": True, "positive_weight": 3.0},
            ["--positive-weight", "--balance-classes"],
        ),
        (ReportConfig, {"bootstrap": -1}, ["--bootstrap", "-1"]),
        (SupervisedConfig, {"device": "abacus"}, ["--device", "'abacus'", "cpu"]),
        (DataConfig, {"split": "sorted"}, ["--split", "'sorted'", "random, scaffold"]),
        (DataConfig, {"validation_size": 0.0}, ["--validation-size", "0.0"]),
        (DataConfig, {"test_size": 1.0}, ["--test-size", "1.0"]),
        (DataConfig, {"test_size": -0.1}, ["--test-size", "-0.1"]),
        (DataConfig, {"test_size": 0.5, "folds": 3}, ["--test-size cannot be used with --folds"]),
        (
            DataConfig,
            {"only_fold": 1, "folds": 3, "repeats": 2},
            ["--repeats cannot be used with --only-fold"],
        ),
        (
            DataConfig,
            {"cluster_cutoff": 0.5},
            ["--cluster-cutoff is used only with --split cluster"],
        ),
        (DataConfig, {"test_size": 0.5, "split_column": "s"}, ["--test-size", "--split-column"]),
        (DataConfig, {"validation_size": 0.5, "test_size": 0.5}, ["0.5 + 0.5", "below 1"]),
        (DataConfig, {"target_columns": "logS"}, ["--target-columns", "'logS'", "tuple"]),
        (DataConfig, {"target_columns": ("a", "a")}, ["--target-columns", "once"]),
        (DataConfig, {"target_columns": ("a",), "target_units": ("m", "s")}, ["--target-units"]),
        (
            DataConfig,
            {"target_columns": ("a",), "relation_columns": ("r", "s")},
            ["--relation-columns: got 2 values for 1 target columns"],
        ),
        (PredictConfig, {"batch_size": 0}, ["--batch-size", "0"]),
    ],
)
def test_a_wrong_value_is_refused_by_option_and_by_what_was_expected(kind, options, words):
    with pytest.raises(InputError) as error:
        kind(**options)
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_the_bounds_themselves_are_allowed():
    SupervisedConfig(warmup=0.0, weight_decay=0.0, gradient_clip=0.0, seed=2**32 - 1)
    SupervisedConfig(warmup=1, epochs=1, patience=1, batch_size=1)


def test_options_cannot_be_changed_afterwards():
    with pytest.raises(FrozenInstanceError):
        DataConfig().split = "random"  # type: ignore[misc]


def test_a_run_survives_json():
    data = DataConfig(target_columns=("a", "b"), target_units=("m", "s"), split="scaffold")
    config = TrainConfig("x.csv", data, NetworkConfig(), SupervisedConfig(seed=7))
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize("config", [{"datas": {}}, {"data": {"smile_column": "s"}}])
def test_unknown_options_of_a_run_are_refused(config):
    (name,) = [*config.get("data", config)]
    with pytest.raises(InputError, match=f"unknown key '{name}'"):
        TrainConfig.from_dict({"file": "x.csv", **config})


def test_changed_options_are_refused_by_name(tmp_path):
    data = DataConfig(target_columns=("y",))
    one = TrainConfig("a.csv", data, NetworkConfig(width=8), SupervisedConfig())
    two = replace(one, file="b.csv", training=SupervisedConfig(batch_size=7))
    with pytest.raises(InputError, match=f"--batch-size: got 7, but the run in {tmp_path} has 32"):
        check_same_options(one, two, tmp_path)
    check_same_options(one, replace(one, file="b.csv"), tmp_path)
    check_same_options(one, replace(one, training=SupervisedConfig(max_hours=2.0)), tmp_path)


def test_how_much_of_a_training_is_the_heads_and_how_slow_the_rest():
    assert FineTuningConfig() == FineTuningConfig("auto", "auto", 0.5, 500)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"freeze": "head"}, "--freeze: got 'head', expected one of auto, none, embeddings"),
        ({"init_from": None}, "--init-from: got None, expected the name or folder of a model"),
        ({"init_from": ""}, "--init-from: got ''"),
        ({"freeze": -1}, "--freeze: got -1, expected a number of blocks"),
        ({"freeze": True}, "--freeze: got True"),
        ({"backbone_lr_scale": 2.0}, "got 2.0, expected a number from 0 to 1"),
        ({"head_steps": -1}, "--head-steps: got -1, expected a whole number of at least 0"),
    ],
)
def test_a_beginning_that_cannot_be_is_refused(options, words):
    with pytest.raises(InputError, match=words):
        FineTuningConfig(**{"init_from": "model", **options})
    with pytest.raises(InputError, match="--freeze needs a pretrained model"):
        FineTuningConfig("none", freeze="encoder")
    assert FineTuningConfig("none", freeze="none").freeze == "none"  # as earlier versions wrote it
    with pytest.raises(InputError, match="--backbone-lr-scale needs a pretrained model"):
        FineTuningConfig("none", backbone_lr_scale=0.1)
    with pytest.raises(InputError, match="--head-steps needs a pretrained model"):
        FineTuningConfig("none", head_steps=10)


def test_a_head_that_there_is_not_is_refused():
    with pytest.raises(InputError, match=r"--head: got 'tree', expected one of auto, mlp, fourier"):
        check_network(NetworkConfig(head="tree"))


@pytest.mark.parametrize("name", ["dropout", "head_dropout", "attention_dropout"])
def test_a_dropout_that_cannot_be_is_refused_by_name(name):
    with pytest.raises(InputError, match=f"--{name.replace('_', '-')}: got 2.0, expected a number"):
        NetworkConfig(**{name: 2.0})


@pytest.mark.parametrize(
    "name, value, expected",
    [
        ("descriptors", "no", "--descriptors: got 'no', expected one of none, lipinski, all"),
        ("standardize", "no", "--standardize: got 'no', expected true or false"),
        ("gate", 1, "--gate: got 1, expected true or false"),
        ("smiles_column", 2, "--smiles-column: got 2, expected text; put a number in quotes"),
        ("target_columns", (2,), "--target-columns: got (2,), expected text"),
        ("layers", None, "--layers: got None, expected a whole number"),
    ],
)
def test_a_value_of_another_type_is_refused(name, value, expected):
    with pytest.raises(InputError, match=re.escape(expected)):
        TrainConfig.from_options("t.csv", {name: value})


def test_descriptors_of_earlier_versions_were_all_or_none():
    for given, expected in ((True, "all"), (False, "none")):
        config = TrainConfig.from_options("a.csv", {"descriptors": given})
        assert config.data.descriptors == expected


def test_numpy_scalars_become_plain_values():
    options = {"width": np.int64(8), "learning_rate": np.float32(0.5), "standardize": np.True_}
    config = TrainConfig.from_options("a.csv", options)
    assert json.loads(json.dumps(config.to_dict())) == config.to_dict()
    assert config.network.width == 8
    with pytest.raises(InputError, match=r"--epochs: got 2\.5, expected a whole number"):
        TrainConfig.from_options("a.csv", {"epochs": np.float64(2.5)})


@pytest.mark.parametrize(
    "name, value",
    [
        ("width", -8),
        ("width", 10**21),
        ("edge_width", 0),
        ("heads", 0),
        ("bootstrap", 10**13),
        ("repeats", 10**11),
    ],
)
def test_a_size_beyond_its_bounds_is_named(name, value):
    with pytest.raises(InputError, match=rf"{option(name)}: got {value}, expected a whole number"):
        TrainConfig.from_options("a.csv", {"folds": 2, name: value})


def test_a_configuration_of_an_earlier_version_may_have_its_default_epochs():
    process = GaussianProcessConfig(predictor="gaussian_process")
    data = DataConfig(target_columns=("y",))
    made = partial(TrainConfig, "t.csv", data, NetworkConfig(), gaussian_process=process)
    as_before = FineTuningConfig(freeze="none")  # which earlier versions wrote
    assert made(SupervisedConfig(), fine_tuning=as_before).fine_tuning == as_before
    with pytest.raises(InputError, match="--freeze"):
        made(SupervisedConfig(), fine_tuning=FineTuningConfig(freeze="encoder"))
    assert made(SupervisedConfig(epochs=30)).training.epochs == 30
    with pytest.raises(InputError, match="--epochs cannot be used with --predictor"):
        made(SupervisedConfig(epochs=29))


@pytest.mark.parametrize(
    "columns", [np.array(["a", "b"]), pd.Index(["a", "b"]), ["a", "b"], iter(["a", "b"])]
)
def test_options_of_several_values_take_any_iterable(columns):
    config = TrainConfig.from_options("", {"target_columns": columns})
    assert config.data.target_columns == ("a", "b")


@pytest.mark.parametrize("weights", [np.int64(2), np.array(2.0), [np.float32(2.0)], 2, (2.0,)])
def test_numbers_of_numpy_are_numbers(weights):
    data = TrainConfig.from_options("", {"target_columns": "y", "task_weights": weights}).data
    assert data.task_weights == (2.0,)
    assert type(data.task_weights[0]) in (int, float)
