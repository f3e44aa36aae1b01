"""Options are checked where they are declared, and errors name them."""

import json
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from molattn.config import (
    DataConfig,
    ExplainConfig,
    FineTuningConfig,
    GaussianProcessConfig,
    NetworkConfig,
    PlanConfig,
    PredictConfig,
    PrepareConfig,
    PretrainConfig,
    ServeConfig,
    SupervisedConfig,
    TrainConfig,
    check_same_options,
)
from molattn.config.yaml_file import read_config_file, write_config_file
from molattn.errors import InputError

from ..conftest import assert_one_line
from ..strategies import options_of


@pytest.mark.parametrize(
    "kind, name, value",
    [
        (SupervisedConfig, "epochs", 0),
        (SupervisedConfig, "ensemble", 1001),
        (SupervisedConfig, "learning_rate", float("nan")),
        (SupervisedConfig, "warmup", 1.5),
        (SupervisedConfig, "schedule", "sine"),
        (SupervisedConfig, "batch", 3),
        (NetworkConfig, "layers", 10**9),
        (DataConfig, "split", "sorted"),
        (DataConfig, "validation_size", 0.0),
        (DataConfig, "smiles_column", 2),
        (DataConfig, "target_columns", ("a", "a")),
        (DataConfig, "target_units", ("m", "s")),
        (FineTuningConfig, "freeze", -1),
        (FineTuningConfig, "init_from", ""),
        (GaussianProcessConfig, "kernels", ("morgan", "morgan")),
        (ExplainConfig, "method", ()),
        (ServeConfig, "port", 70_000),
    ],
)
def test_a_wrong_value_is_refused_by_option(kind, name, value):
    with pytest.raises(InputError) as error:
        kind(**{name: value})
    assert error.value.option == name
    assert str(error.value).startswith(f"{name}: ")
    assert error.value.command_line().startswith(f"--{name.replace('_', '-')}: ")
    assert_one_line(error.value)


@pytest.mark.parametrize(
    "kind, options, name",
    [
        (SupervisedConfig, {"ensemble": 3, "seed": 2**32 - 2}, "seed"),
        (SupervisedConfig, {"balance_classes": True, "positive_weight": 3.0}, "positive_weight"),
        (DataConfig, {"test_size": 0.5, "folds": 3}, "test_size"),
        (DataConfig, {"only_fold": 4, "folds": 3}, "only_fold"),
        (DataConfig, {"validation_size": 0.5, "test_size": 0.5}, "validation_size"),
        (DataConfig, {"target_columns": ("a",), "task_weights": (0,)}, "task_weights"),
        (PrepareConfig, {"resume": True, "overwrite": True}, "resume"),
        (PrepareConfig, {"pretraining_columns": ("a",)}, "pretraining_columns"),
        (FineTuningConfig, {"init_from": "none", "freeze": "encoder"}, "freeze"),
        (GaussianProcessConfig, {"predictor": "network", "kernels": ("morgan",)}, "kernels"),
        (PredictConfig, {"ray_address": "auto"}, "ray_address"),
        (PredictConfig, {"atoms": True, "bonds": True}, "bonds"),
        (PredictConfig, {"atoms": True, "neighbors": 3}, "neighbors"),
        (PredictConfig, {"bonds": True, "difference_from": "old"}, "difference_from"),
        (PredictConfig, {"bonds": True, "style": "readable"}, "style"),
        (PlanConfig, {"atoms": True}, "atoms"),
        (ServeConfig, {"max_queue": 5}, "max_queue"),
        (ServeConfig, {"host": "0.0.0.0"}, "token"),
        (TrainConfig, {"folds": 3, "final": True, "patience": 3}, "patience"),
        (TrainConfig, {"folds": 3, "validation_size": 0.0, "checkpoint": "best"}, "checkpoint"),
        (TrainConfig, {"predictor": "gaussian_process", "width": 8}, "width"),
        (TrainConfig, {"predictor": "gaussian_process", "epochs": 29}, "epochs"),
        (TrainConfig, {"predictor": "gaussian_process", "init_from": "none"}, "init_from"),
        (TrainConfig, {"kernels": "descriptors", "descriptors": "none"}, "kernels"),
        (TrainConfig, {"epoch": 3}, "epoch"),
        (PretrainConfig, {"pretraining_columns": "a", "targets": "atoms"}, "pretraining_columns"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(kind, options, name, monkeypatch):
    monkeypatch.delenv("MOLATTN_TOKEN", raising=False)
    is_run = kind in (TrainConfig, PretrainConfig)
    files = ("t.csv",) if kind is PretrainConfig else "t.csv"
    with pytest.raises(InputError) as error:
        kind.from_options(files, options) if is_run else kind(**options)
    assert error.value.option == name


def test_bounds_are_allowed_and_sections_frozen():
    SupervisedConfig(warmup=0.0, weight_decay=0.0, gradient_clip=0.0, seed=2**32 - 1)
    SupervisedConfig(warmup=1, epochs=1, patience=1, batch_size=1)
    with pytest.raises(FrozenInstanceError):
        DataConfig().split = "random"  # type: ignore[misc]


def test_changed_options_are_refused_by_name(tmp_path):
    one = TrainConfig("a.csv", training=SupervisedConfig(batch_size=32))
    with pytest.raises(InputError) as error:
        check_same_options(one, replace(one, training=SupervisedConfig(batch_size=7)), tmp_path)
    assert error.value.option == "batch_size"
    check_same_options(one, replace(one, file="b.csv"), tmp_path)
    check_same_options(one, replace(one, training=SupervisedConfig(max_hours=2.0)), tmp_path)


@pytest.mark.parametrize(
    "columns", ["a", np.array(["a"]), pd.Index(["a"]), ["a"], iter(["a"]), np.array("a")]
)
def test_options_of_python_become_plain_values(columns):
    options = {"target_columns": columns, "task_weights": np.int64(2)}
    options |= {"width": np.int64(8), "learning_rate": np.float32(0.5), "standardize": np.True_}
    config = TrainConfig.from_options("a.csv", options)
    assert config.data.target_columns == ("a",)
    assert TrainConfig(**json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize("run", [TrainConfig, PretrainConfig])
@given(data=st.data())
def test_any_options_make_a_run_that_its_file_repeats_or_an_error(tmp_path_factory, run, data):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(yaml.safe_dump(data.draw(options_of(run)), allow_unicode=True), "utf-8")
    try:
        config = run(**read_config_file(path))
    except InputError as error:
        if error.option in run.options():
            assert_one_line(error)
        return
    write_config_file(path, config)
    again = run(**read_config_file(path))
    assert again == replace(config, **{run.file_key(): getattr(again, run.file_key())})


def test_a_few_options_by_hand_are_enough(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "few.yaml"
    path.write_text("data:\n  target_columns: [a, b]\ntraining:\n  learning_rate: 1e-4\nreport:")
    config = TrainConfig(**read_config_file(path))
    assert config.data.target_columns == ("a", "b")
    assert config.training.learning_rate == 1e-4
    write_config_file(path, TrainConfig("x.csv"))
    assert read_config_file(path)["file"] == str(tmp_path / "x.csv")
    path.write_text("")
    assert read_config_file(path) == {}


@pytest.mark.parametrize(
    "text, words",
    [
        ("- a", "sections"),
        ("data: {a", "not a YAML file"),
        ("data: !!python/object/apply:os.system ['true']", "not a YAML file"),
        ("[" * 100_000, "not a YAML file"),
        (None, "no such file"),
    ],
)
def test_a_file_without_options_is_refused(tmp_path, text, words):
    path = tmp_path / "odd.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError) as error:
        read_config_file(path)
    assert [word for word in ["odd.yaml", *words.split()] if word not in str(error.value)] == []
    assert_one_line(error.value)
