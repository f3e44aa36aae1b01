import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from molattn.config import TrainConfig
from molattn.errors import InputError
from molattn.tuning.search_space import (
    DEFAULT_SPACE,
    check_space,
    default_space,
    read_space,
    write_space,
)


def saved(tmp_path, text):
    path = tmp_path / "space.yaml"
    path.write_text(text)
    return path


def config_of(**options):
    return TrainConfig.from_options("", options)


def test_lists_are_choices_and_ends_are_ranges(tmp_path):
    text = """
width: [64, 128]
readout: [mean, sum]
gate: [true, false]
layers: {low: 1, high: 4}
learning_rate: {low: 1e-4, high: 0.01, log: true}
freeze: [none, encoder]
epochs: {low: 5, high: 40}
patience: [2, 3]
"""
    space = read_space(saved(tmp_path, text))
    assert space == {
        "width": CategoricalDistribution((64, 128)),
        "readout": CategoricalDistribution(("mean", "sum")),
        "gate": CategoricalDistribution((True, False)),
        "layers": IntDistribution(1, 4),
        "learning_rate": FloatDistribution(1e-4, 0.01, log=True),
        "freeze": CategoricalDistribution(("none", "encoder")),
        "epochs": IntDistribution(5, 40),
        "patience": CategoricalDistribution((2, 3)),
    }
    write_space(tmp_path / "again.yaml", space)
    assert read_space(tmp_path / "again.yaml") == space


@pytest.mark.parametrize(
    "text, named",
    [
        ("widht: [1]", "width"),
        ("seed: [1, 2]", "seed"),
        ("loss: [mse, mae]", "loss"),
        ("width: 64", "64"),
        ("width: []", "width"),
        ("readout: [[mean], [sum]]", "readout"),
        ("readout: {low: 0, high: 1}", "readout"),
        ("dropout: {low: 0}", "high"),
        ("dropout: {low: 0.5, high: 0.1}", "dropout"),
        ("dropout: {low: 0, high: 0.1, log: true}", "dropout"),
        ("dropout: {low: 0, high: 0.1, step: 1}", "step"),
        ("[width]", "options"),
        ("a: b: c", "YAML"),
    ],
)
def test_an_invalid_space_is_refused_by_name(tmp_path, text, named):
    with pytest.raises(InputError, match=rf"space\.yaml.*{named}"):
        read_space(saved(tmp_path, text))


def test_the_default_leaves_out_what_is_set():
    def left_out(**options):
        return {*DEFAULT_SPACE} - {*default_space(config_of(**options))}

    assert DEFAULT_SPACE.keys() <= TrainConfig.options().keys()
    fine_tuning = {"backbone_lr_scale", "freeze"}
    assert left_out(init_from="none", dropout=0.0) == {*fine_tuning, "dropout"}
    # The network is that of the model that a run starts from.
    assert left_out(init_from="base") == {"width", "heads", "layers", "readout", "gate"}
    assert left_out(init_from="none", layer="mat") == {*fine_tuning, "gate"}
    kernels = config_of(kernels=["morgan", "descriptors"])  # which needs descriptors
    assert default_space(kernels)["descriptors"].choices == ("lipinski", "all")


@pytest.mark.parametrize(
    "space, named",
    [
        ({"batch_size": IntDistribution(0, 8)}, "batch_size"),
        ({"width": CategoricalDistribution((64.5,))}, "width"),
    ],
)
def test_all_values_are_checked(space, named):
    with pytest.raises(InputError, match=rf"search space: .*{named}"):
        check_space(space, config_of())
