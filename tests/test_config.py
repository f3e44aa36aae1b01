import json
from dataclasses import FrozenInstanceError

import pytest

from molattn.config import (
    ArchitectureConfig,
    DataConfig,
    OptimisationConfig,
    PredictConfig,
    TrainConfig,
)
from molattn.errors import InputError


@pytest.mark.parametrize(
    "kind, options, words",
    [
        (OptimisationConfig, {"epochs": 0}, ["--epochs", "0", "at least 1"]),
        (OptimisationConfig, {"epochs": 2.5}, ["--epochs", "2.5", "whole number"]),
        (OptimisationConfig, {"patience": 0}, ["--patience", "at least 1"]),
        (OptimisationConfig, {"threads": 0}, ["--threads", "0"]),
        (OptimisationConfig, {"batch_size": True}, ["--batch-size", "True"]),
        (OptimisationConfig, {"learning_rate": 0.0}, ["--learning-rate", "positive"]),
        (OptimisationConfig, {"learning_rate": float("nan")}, ["--learning-rate", "nan"]),
        (OptimisationConfig, {"learning_rate": float("inf")}, ["--learning-rate", "inf"]),
        (OptimisationConfig, {"warmup": 1.5}, ["--warmup", "1.5", "0 to 1"]),
        (OptimisationConfig, {"weight_decay": -1.0}, ["--weight-decay", "-1.0"]),
        (OptimisationConfig, {"gradient_clip": "x"}, ["--gradient-clip", "'x'"]),
        (OptimisationConfig, {"seed": -1}, ["--seed", "-1"]),
        (OptimisationConfig, {"device": "abacus"}, ["--device", "'abacus'", "cpu"]),
        (DataConfig, {"split": "sorted"}, ["--split", "'sorted'", "random, scaffold"]),
        (DataConfig, {"validation_size": 0.0}, ["--validation-size", "0.0"]),
        (DataConfig, {"test_size": 1.0}, ["--test-size", "1.0"]),
        (DataConfig, {"validation_size": 0.5, "test_size": 0.5}, ["0.5 + 0.5", "below 1"]),
        (DataConfig, {"target_columns": "logS"}, ["--target-columns", "'logS'", "tuple"]),
        (DataConfig, {"target_columns": ("a", "a")}, ["--target-columns", "once"]),
        (DataConfig, {"target_columns": ("a",), "target_units": ("m", "s")}, ["--target-units"]),
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
    OptimisationConfig(warmup=0.0, weight_decay=0.0, gradient_clip=0.0, seed=2**32 - 1)
    OptimisationConfig(warmup=1, epochs=1, patience=1, batch_size=1)


def test_options_cannot_be_changed_afterwards():
    with pytest.raises(FrozenInstanceError):
        DataConfig().split = "random"  # type: ignore[misc]


def test_a_run_survives_json():
    data = DataConfig(target_columns=("a", "b"), target_units=("m", "s"), split="scaffold")
    config = TrainConfig("x.csv", data, ArchitectureConfig(), OptimisationConfig(seed=7))
    back = json.loads(json.dumps(config.to_dict()))
    assert back["file"] == "x.csv"
    lists = ("target_columns", "target_units")
    options = {k: tuple(v) if k in lists else v for k, v in back["data"].items()}
    assert DataConfig(**options) == data
    assert OptimisationConfig(**back["optimisation"]) == config.optimisation
    assert ArchitectureConfig(**back["architecture"]) == config.architecture
