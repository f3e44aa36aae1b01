import json
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pandas as pd
import pytest

from molattn.config import (
    DataConfig,
    ExplainConfig,
    FineTuningConfig,
    GaussianProcessConfig,
    NetworkConfig,
    PredictConfig,
    PretrainConfig,
    ReportConfig,
    ServeConfig,
    SupervisedConfig,
    TrainConfig,
    check_same_options,
)
from molattn.errors import InputError

from ..conftest import assert_one_line


@pytest.mark.parametrize(
    "kind, name, value",
    [
        (SupervisedConfig, "epochs", 0),
        (SupervisedConfig, "epochs", 2.5),
        (SupervisedConfig, "ensemble", 1001),
        (SupervisedConfig, "patience", 0),
        (SupervisedConfig, "threads", 100_000),
        (SupervisedConfig, "learning_rate", 0.0),
        (SupervisedConfig, "learning_rate", float("nan")),
        (SupervisedConfig, "learning_rate", float("inf")),
        (SupervisedConfig, "warmup", 1.5),
        (SupervisedConfig, "weight_decay", -1.0),
        (SupervisedConfig, "gradient_clip", "x"),
        (SupervisedConfig, "seed", -1),
        (SupervisedConfig, "schedule", "sine"),
        (SupervisedConfig, "loss", "rmse"),
        (SupervisedConfig, "label_smoothing", 1.0),
        (SupervisedConfig, "batch", 3),
        (NetworkConfig, "layers", 10**9),
        (NetworkConfig, "width", 10**21),
        (NetworkConfig, "heads", 0),
        (NetworkConfig, "dropout", 2.0),
        (NetworkConfig, "gate", "perhaps"),
        (ReportConfig, "bootstrap", 10**13),
        (DataConfig, "split", "sorted"),
        (DataConfig, "validation_size", 0.0),
        (DataConfig, "test_size", 1.0),
        (DataConfig, "smiles_column", 2),
        (DataConfig, "target_columns", "logS"),
        (DataConfig, "target_columns", ("a", "a")),
        (DataConfig, "target_columns", (2,)),
        (DataConfig, "target_units", ("m", "s")),
        (DataConfig, "task", ("guess",)),
        (DataConfig, "folds", 1),
        (FineTuningConfig, "freeze", "head"),
        (FineTuningConfig, "freeze", -1),
        (FineTuningConfig, "init_from", ""),
        (GaussianProcessConfig, "kernels", ("morgan", "morgan")),
        (PredictConfig, "neighbors", 0),
        (ExplainConfig, "method", ()),
        (ServeConfig, "port", 70_000),
    ],
)
def test_wrong_values_are_refused_by_option(kind, name, value):
    with pytest.raises(InputError) as error:
        kind(**{name: value})
    assert error.value.option == name
    assert_one_line(error.value)


@pytest.mark.parametrize(
    "kind, options, names",
    [
        (SupervisedConfig, {"ensemble": 3, "seed": 2**32 - 2}, ["--seed", "--ensemble"]),
        (
            SupervisedConfig,
            {"balance_classes": True, "positive_weight": 3.0},
            ["--positive-weight", "--balance-classes"],
        ),
        (DataConfig, {"test_size": 0.5, "folds": 3}, ["--test-size", "--folds"]),
        (DataConfig, {"only_fold": 1, "folds": 3, "repeats": 2}, ["--repeats", "--only-fold"]),
        (DataConfig, {"only_fold": 4, "folds": 3}, ["--only-fold", "3"]),
        (DataConfig, {"final": True}, ["--final", "--folds"]),
        (DataConfig, {"folds": 3, "split_column": "s"}, ["--folds", "--split-column"]),
        (DataConfig, {"cluster_cutoff": 0.5}, ["--cluster-cutoff", "--split cluster"]),
        (DataConfig, {"split": "order"}, ["--split order", "--order-column"]),
        (DataConfig, {"split": "scaffold", "split_duplicates": True}, ["--split-duplicates"]),
        (DataConfig, {"test_size": 0.5, "split_column": "s"}, ["--test-size", "--split-column"]),
        (DataConfig, {"validation_size": 0.5, "test_size": 0.5}, ["0.5 + 0.5"]),
        (DataConfig, {"target_columns": ("a",), "task_weights": (0,)}, ["--task-weights"]),
        (NetworkConfig, {"pairs": "bonds", "radius": 2}, ["--radius", "--pairs bonds"]),
        (FineTuningConfig, {"init_from": "none", "freeze": "encoder"}, ["--freeze"]),
        (FineTuningConfig, {"init_from": "none", "head_steps": 10}, ["--head-steps"]),
        (PredictConfig, {"ray_address": "auto"}, ["--ray-address", "--engine ray"]),
        (ServeConfig, {"max_queue": 5}, ["--max-queue", "--max-molecules"]),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(kind, options, names):
    with pytest.raises(InputError) as error:
        kind(**options)
    assert all(name in str(error.value) for name in names)


@pytest.mark.parametrize(
    "options, name",
    [
        ({"partner": "cross_attention"}, "--partner-column"),
        ({"folds": 3, "final": True, "patience": 3}, "--patience"),
        ({"folds": 3, "validation_size": 0.0, "checkpoint": "best"}, "--checkpoint"),
        ({"predictor": "gaussian_process", "width": 8}, "--width"),
        ({"predictor": "gaussian_process", "epochs": 29}, "--epochs"),
        ({"predictor": "gaussian_process", "init_from": "none"}, "--init-from"),
        ({"kernels": "descriptors", "descriptors": "none"}, "--kernels"),
    ],
)
def test_options_of_sections_that_do_not_fit_are_refused_by_name(options, name):
    with pytest.raises(InputError) as error:
        TrainConfig.from_options("t.csv", options)
    assert name in str(error.value)


def test_bounds_are_allowed_and_sections_frozen():
    SupervisedConfig(warmup=0.0, weight_decay=0.0, gradient_clip=0.0, seed=2**32 - 1)
    SupervisedConfig(warmup=1, epochs=1, patience=1, batch_size=1)
    with pytest.raises(FrozenInstanceError):
        DataConfig().split = "random"  # type: ignore[misc]


@pytest.mark.parametrize("kind", [TrainConfig, PretrainConfig])
def test_a_run_survives_json(kind):
    files = "x.csv" if kind is TrainConfig else ("x.csv", "y.csv")
    config = kind.from_options(files, {"seed": 7, "width": 64, "smiles_column": "s"})
    assert kind.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    "config, name",
    [
        ({"datas": {}}, "datas"),
        ({"data": {"smile_column": "s"}}, "smile_column"),
        ({"data": {"test_size": 2}}, "test_size"),
        ({"fine_tuning": {"freeze": "head"}}, "freeze"),
    ],
)
def test_a_dictionary_is_checked_as_a_run_is(config, name):
    with pytest.raises(InputError) as error:
        TrainConfig.from_dict({"file": "x.csv", **config})
    assert error.value.option == name


def test_changed_options_are_refused_by_name(tmp_path):
    one = TrainConfig("a.csv", training=SupervisedConfig(batch_size=32))
    with pytest.raises(InputError) as error:
        check_same_options(one, replace(one, training=SupervisedConfig(batch_size=7)), tmp_path)
    assert error.value.option == "batch_size"
    check_same_options(one, replace(one, file="b.csv"), tmp_path)
    check_same_options(one, replace(one, training=SupervisedConfig(max_hours=2.0)), tmp_path)


def test_an_unknown_option_has_a_hint():
    with pytest.raises(InputError, match="did you mean 'epochs'"):
        TrainConfig.from_options("a.csv", {"epoch": 3})


def test_scalars_of_numpy_become_plain_values():
    options = {"width": np.int64(8), "learning_rate": np.float32(0.5), "standardize": np.True_}
    config = TrainConfig.from_options("a.csv", options)
    assert json.loads(json.dumps(config.to_dict())) == config.to_dict()
    assert config.network.width == 8


@pytest.mark.parametrize(
    "columns", [np.array(["a", "b"]), pd.Index(["a", "b"]), ["a", "b"], iter(["a", "b"])]
)
def test_several_values_are_any_iterable(columns):
    config = TrainConfig.from_options("", {"target_columns": columns})
    assert config.data.target_columns == ("a", "b")


@pytest.mark.parametrize("weights", [np.int64(2), np.array(2.0), [np.float32(2.0)], 2, (2.0,)])
def test_a_single_value_is_one_of_several(weights):
    data = TrainConfig.from_options("", {"target_columns": "y", "task_weights": weights}).data
    assert data.task_weights == (2.0,)
    assert type(data.task_weights[0]) is float
