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


def test_lists_are_choices_and_ends_are_ranges(tmp_path):
    text = """
width: [64, 128]
readout: [mean, sum]
gate: [true, false]
layers: {low: 1, high: 4}
learning_rate: {low: 1e-4, high: 0.01, log: true}
descriptors: [none, all]
"""
    space = read_space(saved(tmp_path, text))
    assert space == {
        "width": CategoricalDistribution((64, 128)),
        "readout": CategoricalDistribution(("mean", "sum")),
        "gate": CategoricalDistribution((True, False)),
        "layers": IntDistribution(1, 4),
        "learning_rate": FloatDistribution(1e-4, 0.01, log=True),
        "descriptors": CategoricalDistribution(("none", "all")),
    }
    assert isinstance(space["layers"].low, int)
    write_space(tmp_path / "again.yaml", space)
    assert read_space(tmp_path / "again.yaml") == space


@pytest.mark.parametrize(
    "text,words",
    [
        ("widht: [1]", r"widht: unknown option, did you mean 'width'\?"),
        ("seed: [1, 2]", "seed: cannot be varied"),
        ("checkpoint: [best, last]", "checkpoint: cannot be varied"),
        ("max_hours: [1, 2]", "max_hours: cannot be varied"),
        ("loss: [mse, mae]", "loss: cannot be varied"),
        ("target_columns: [y]", "target_columns: cannot be varied"),
        ("width: 64", "width: got 64, expected a list of values, or low and high"),
        ("width: []", "width: got .*, expected a list"),
        ("width: [64, 64]", "expected no value more than once"),
        ("width: [64.5]", "expected a whole number"),
        ("width: [wide]", "expected a number"),
        ("readout: [[mean], [sum]]", "readout: got .*, expected numbers, strings, true or false"),
        (
            "readout: {low: 0, high: 1}",
            "got a range for an option that is not a number, expected a list",
        ),
        ("dropout: {low: 0}", "'high' is missing"),
        ("dropout: {low: 0.5, high: 0.1}", "expected low < high"),
        ("dropout: {low: 0, high: 0.1, log: true}", "expected 0 < low < high"),
        ("dropout: {low: 0, high: 0.1, step: 1}", "got 'step'"),
        ("[width]", "expected names of options with their values"),
        ("", "got None, expected names of options"),
        ("a: b: c", "not a YAML file"),
        (f"width: {{low: 1, high: 0x{'f' * 300}}}", "got 1"),
        (f"width: [0x{'f' * 300}]", "got 1"),
    ],
)
def test_what_cannot_be_searched_is_named(tmp_path, text, words):
    with pytest.raises(InputError, match=rf"space\.yaml.*{words}"):
        read_space(saved(tmp_path, text))


def test_a_kernel_of_descriptors_keeps_them():
    kernels = {"kernels": ["morgan", "descriptors"]}
    found = default_space(TrainConfig.from_options("", kernels))["descriptors"].choices
    assert found == ("lipinski", "all")
    assert "none" in default_space(TrainConfig.from_options("", {}))["descriptors"].choices


def test_the_default_leaves_out_what_is_set():
    def left_out(**options):
        return {*DEFAULT_SPACE} - {*default_space(TrainConfig.from_options("", options))}

    assert DEFAULT_SPACE.keys() <= TrainConfig.options().keys()
    fine_tuning = {"backbone_lr_scale", "freeze"}
    assert left_out(init_from="none") == fine_tuning
    assert left_out(init_from="none", dropout=0.0) == {*fine_tuning, "dropout"}
    # The network is that of the model that a run begins with.
    assert left_out(init_from="base") == {"width", "heads", "layers", "readout", "gate"}
    assert left_out(init_from="none", layer="mat") == {*fine_tuning, "gate"}
    assert left_out(init_from="none", layer="graph_network") == fine_tuning


def test_a_value_that_its_option_cannot_have_is_named():
    with pytest.raises(InputError, match="search space: batch_size: got 0"):
        check_space(
            {"batch_size": IntDistribution(0, 8)},
            lambda options: TrainConfig.from_options("", options),
        )


@pytest.mark.parametrize(
    "space,options,words",
    [
        ({"width": CategoricalDistribution((32, 33))}, {}, r"heads: got 8, .*width \(33\)"),
        ({"width": IntDistribution(32, 40)}, {}, r"width \(33\)"),
        ({"heads": CategoricalDistribution((3,))}, {"width": 32}, "heads: got 3"),
        ({"width": IntDistribution(32, 40)}, {"heads": 1}, None),
        (
            {"width": CategoricalDistribution((32, 33)), "heads": CategoricalDistribution((3, 8))},
            {},
            None,  # 33 and 3 go together
        ),
    ],
)
def test_the_heads_divide_the_width(space, options, words):
    def chosen(values):
        return TrainConfig.from_options("", {"heads": 8, **options, **values})

    if words is None:
        check_space(space, chosen)
    else:
        with pytest.raises(InputError, match=words):
            check_space(space, chosen)


def test_a_number_that_may_be_left_out_has_a_range(tmp_path):
    (tmp_path / "space.yaml").write_text("epochs: {low: 5, high: 40}\npatience: [2, 3]\n")
    space = read_space(tmp_path / "space.yaml")
    assert isinstance(space["epochs"], IntDistribution)
    assert (space["epochs"].low, space["epochs"].high) == (5, 40)
    (tmp_path / "space.yaml").write_text("epochs: [5, 7.5]\n")
    with pytest.raises(InputError, match=r"epochs: got 7\.5"):
        read_space(tmp_path / "space.yaml")
