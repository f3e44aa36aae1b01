from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from molattn.config import (
    DataConfig,
    NetworkConfig,
    PretrainConfig,
    ReportConfig,
    SupervisedConfig,
    TrainConfig,
)
from molattn.config.yaml_file import read_config_file, write_config_file
from molattn.errors import InputError

from ..conftest import assert_one_line
from ..strategies import options_of

names = st.text(min_size=1, max_size=8).filter(lambda text: text.isprintable())


@given(names, st.lists(names, min_size=1, max_size=3, unique=True), st.floats(1e-9, 10), names)
def test_what_is_written_is_read_again(tmp_path_factory, smiles, targets, rate, unit):
    config = TrainConfig(
        "/data/x.csv",
        DataConfig(
            smiles_column=smiles, target_columns=targets, target_units=[unit] * len(targets)
        ),
        NetworkConfig(gate=True),
        SupervisedConfig(learning_rate=rate),
        ReportConfig(bootstrap=7),
    )
    path = tmp_path_factory.getbasetemp() / "config.yaml"
    write_config_file(path, config)
    assert TrainConfig.from_dict(read_config_file(path)) == config


def test_the_table_is_written_with_its_whole_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = TrainConfig("x.csv")
    write_config_file(tmp_path / "c.yaml", config)
    written = TrainConfig.from_dict(read_config_file("c.yaml"))
    assert written == replace(config, file=str(tmp_path / "x.csv"))


def test_a_few_options_by_hand_are_enough(tmp_path):
    path = tmp_path / "few.yaml"
    path.write_text("data:\n  target_columns: [a, b]\ntraining:\n  learning_rate: 1e-4\nreport:")
    config = TrainConfig.from_dict(read_config_file(path))
    assert config.data.target_columns == ("a", "b")
    assert config.training.learning_rate == 1e-4
    path.write_text("")
    assert read_config_file(path) == {}


@pytest.mark.parametrize(
    "text, words",
    [
        ("dta: {}", ["'dta'", "'data'"]),
        ("epochs: 3", ["'epochs'", "'training'"]),
        ("data: {epochs: 3}", ["'epochs'", "'training'"]),
        ("training: {learning-rat: 3}", ["'learning-rat'", "'learning_rate'"]),
        ("training: 3", ["training", "3"]),
        ("- a", ["sections"]),
        ("data: {a", ["not a YAML file", "line 1"]),
        ("data: !!python/object/apply:os.system ['true']", ["not a YAML file"]),
        ("1: 2", ["unknown section 1"]),
        (f"training: {{seed: {'9' * 5000}}}", ["not a YAML file"]),
        ("[" * 100_000, ["not a YAML file"]),
    ],
)
def test_unknown_content_is_refused(tmp_path, text, words):
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_config_file(path)
    assert all(word in str(error.value) for word in ["odd.yaml", *words])
    assert_one_line(error.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00\x01")
    for path in (tmp_path / "absent.yaml", tmp_path, tmp_path / "bytes", "/dev/zero"):
        with pytest.raises(InputError, match=str(path)):
            read_config_file(path)


@pytest.mark.parametrize("run", [TrainConfig, PretrainConfig])
@given(data=st.data())
def test_any_values_make_a_run_or_one_error(tmp_path_factory, run, data):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(yaml.safe_dump(data.draw(options_of(run)), allow_unicode=True), "utf-8")
    try:
        config = run.from_dict(read_config_file(path, run))
    except InputError as error:
        assert_one_line(error)
        return
    write_config_file(path, config)
    again = run.from_dict(read_config_file(path, run))
    whole_paths = {key: getattr(again, key) for key in run.file_keys()}
    assert again == replace(config, **whole_paths)
