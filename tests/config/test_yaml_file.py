from dataclasses import replace
from pathlib import Path

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
from molattn.config.yaml_file import check_unchanged, read_config_file, write_config_file
from molattn.errors import InputError

from ..conftest import assert_one_line
from ..strategies import options_of

names = st.text(min_size=1, max_size=8).filter(lambda text: text.isprintable())


@given(names, st.lists(names, min_size=1, max_size=3, unique=True), st.floats(1e-9, 10), names)
def test_what_is_written_is_read_again_exactly(tmp_path_factory, smiles, targets, rate, unit):
    config = TrainConfig(
        "/data/x.csv",
        DataConfig(smiles, tuple(targets), tuple(unit for _ in targets)),
        NetworkConfig(gate=True),
        SupervisedConfig(learning_rate=rate),
        ReportConfig(bootstrap=7),
    )
    path = tmp_path_factory.getbasetemp() / "config.yaml"
    write_config_file(path, config)
    assert TrainConfig.from_dict(read_config_file(path)) == config


def test_the_table_is_written_with_its_whole_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = TrainConfig("x.csv", DataConfig(), NetworkConfig(), SupervisedConfig())
    write_config_file(tmp_path / "c.yaml", config)
    written = TrainConfig.from_dict(read_config_file("c.yaml"))
    assert written == replace(config, file=str(tmp_path / "x.csv"))


def test_a_few_options_by_hand_are_enough(tmp_path):
    path = tmp_path / "few.yaml"
    path.write_text("data:\n  target_columns: [a, 2]\ntraining:\n  learning_rate: 1e-4\nreport:")
    content = read_config_file(path)
    assert content["data"] == {"target_columns": ["a", 2]}
    assert content["report"] == {}
    path.write_text("")
    assert read_config_file(path) == {}


@pytest.mark.parametrize(
    "text, words",
    [
        ("dta: {}", ["'dta'", "did you mean 'data'?"]),
        ("epochs: 3", ["option 'epochs' belongs in section 'training'"]),
        ("data: {epochs: 3}", ["data", "'epochs'; it belongs in section 'training'"]),
        ("learning-rat: 3", ["'training: learning_rate'"]),
        ("training: {epoch: 3}", ["training", "'epoch'", "did you mean 'epochs'?"]),
        ("training: {learning-rate: 3}", ["did you mean 'learning_rate'?"]),
        ("training: 3", ["training", "3", "expected options"]),
        ("- a", ["a list", "sections"]),
        ("data: {split_column: yes}", ["data, split_column", "got true", "quotes"]),
        ("data: {split: [random]}", ["data, split", "single value"]),
        ("data: {target_columns: [[a]]}", ["target_columns", "got a list"]),
        ("data: {target_columns: [null]}", ["target_columns", "got None"]),
        ("training: {epochs: {a: 1}}", ["epochs", "got a mapping"]),
        ("file: 2024", ["file: got 2024, expected a path, in quotes"]),
        ("file: [a.csv]", ["file: got a list, expected a single value"]),
        ("data: {a", ["not a YAML file", "line 1"]),
        ("data: !!python/object/apply:os.system ['true']", ["not a YAML file", "python/object"]),
        ("1: 2", ["unknown key 1"]),
        ("training: {epochs: 1, epochs: 2}", ["'epochs' occurs more than once", "line 1"]),
        ("a: &a [x, x]\nb: &b [*a, *a]", ["'*a' is not supported", "line 2"]),
        ("file: !!timestamp 2024-01-31", ["file: got datetime.date(2024, 1, 31), expected text"]),
        (f"training: {{seed: {'9' * 3000}}}", ["seed", "below 2**63"]),
        (f"training: {{seed: {'9' * 5000}}}", ["not a YAML file", "4300"]),
        (f"training: {{epochs: 0x{'f' * 4000}}}", ["not a YAML file", "4300"]),
        (f"? 0x{'f' * 4000}\n: 1", ["not a YAML file", "4300"]),
        (f"training: {{epochs: 0x{'f' * 3000}}}", ["epochs: got a larger whole number"]),
        (f"file: !!float 1{':59' * 300}.5", ["not a YAML file", "too large"]),
        ("[" * 100_000, ["nested too deeply"]),
        ("#" * 2**20 + "#", ["more than 1,048,576 characters"]),
    ],
)
def test_what_is_no_option_is_refused_with_the_nearest(tmp_path, text, words):
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_config_file(path)
    for word in ["odd.yaml", *words]:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_a_date_is_text(tmp_path):
    path = tmp_path / "dates.yaml"
    path.write_text("file: 2024-01-31\ndata: {smiles_column: 2024-01-31}")
    content = read_config_file(path)
    assert content == {"file": "2024-01-31", "data": {"smiles_column": "2024-01-31"}}


def test_parts_joined_by_colons_are_text(tmp_path):
    path = tmp_path / "times.yaml"
    text = f"1{':59' * 100_000}"
    path.write_text(f"file: {text}\ndata: {{smiles_column: 1:30.5}}")
    assert read_config_file(path) == {"file": text, "data": {"smiles_column": "1:30.5"}}


def test_a_device_is_refused_before_it_is_read():
    with pytest.raises(InputError, match="/dev/zero: got a folder or a device"):
        read_config_file("/dev/zero")


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00\x01")
    for path in (tmp_path / "absent.yaml", tmp_path, tmp_path / "bytes"):
        with pytest.raises(InputError, match=path.name):
            read_config_file(path)


def test_yaml_that_a_person_writes_in_full_is_the_same(tmp_path):
    config = TrainConfig("/x.csv", DataConfig(), NetworkConfig(), SupervisedConfig())
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(config.to_dict()))
    assert TrainConfig.from_dict(read_config_file(path)) == config


def test_files_of_earlier_versions_are_read_under_the_present_names(tmp_path):
    golden = Path(__file__).parent / "golden"
    models = Path(__file__).parents[1] / "model" / "golden"
    content = read_config_file(golden / "train_1.yaml")
    trained = TrainConfig.from_dict(content)
    assert trained.file == "/data/assay.csv"
    assert (trained.data.folds, trained.data.only_fold) == (5, 2)
    assert trained.data.descriptors == "all"
    assert (trained.network.width, trained.network.heads) == (64, 4)
    assert (trained.training.epochs, trained.training.checkpoint) == (7, "best")
    assert (trained.fine_tuning.backbone_lr_scale, trained.fine_tuning.head_steps) == (0.1, 20)
    check_unchanged(golden / "train_1.yaml", trained)
    write_config_file(tmp_path / "config.yaml", trained)
    assert TrainConfig.from_dict(read_config_file(tmp_path / "config.yaml")) == trained

    pretrained = PretrainConfig.from_dict(
        read_config_file(golden / "pretrain_1.yaml", PretrainConfig)
    )
    assert pretrained.molecules.validation_molecules == 50
    assert (pretrained.network.width, pretrained.training.checkpoint) == (64, "last")
    # A checkpoint stores the options as they are in the file.
    stored = yaml.safe_load((golden / "train_1.yaml").read_text())
    network = TrainConfig.from_dict(read_config_file(golden / "train_2.yaml"))
    assert (network.data.descriptors, network.kernels) == ("none", ())
    read = read_config_file(models / "regression_8" / "config.yaml")
    assert TrainConfig.from_dict(read).kernels == ("morgan", "embedding")
    both = stored | {"gaussian_process": {"predictor": "both", "kernels": ["morgan", "embedding"]}}
    assert TrainConfig.from_dict(both).kernels == ("morgan", "embedding")
    assert TrainConfig.from_dict(stored) == trained
    assert "architecture" in stored


@pytest.mark.parametrize(
    "text, words",
    [
        ("data: {fold: 1}", "unknown option 'fold'"),
        ("training: {keep: best}", "unknown option 'keep'"),
        ("fine_tuning: {pretrained_rate: 0.1}", "unknown option 'pretrained_rate'"),
    ],
)
def test_former_names_of_options_are_no_aliases(tmp_path, text, words):
    (tmp_path / "new.yaml").write_text(text)
    with pytest.raises(InputError, match=words):
        read_config_file(tmp_path / "new.yaml")


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
