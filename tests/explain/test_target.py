import math

import numpy as np
import pytest
import torch

from molattn.explain.target import Target
from molattn.model.target_transform import LogTransform, TargetTransform
from molattn.model.uncertainty import ProbabilityScaling
from molattn.task import Task


class WithoutDoubles(torch.Tensor):
    """A tensor of an MPS device as far as its precision goes, on any machine."""

    @property
    def device(self):
        return torch.device("mps")

    def double(self):
        raise TypeError("the MPS framework doesn't support float64")

    def cpu(self):
        return self.as_subclass(torch.Tensor)


def without_doubles(values):
    return torch.tensor(values).as_subclass(WithoutDoubles)


def test_a_device_without_double_precision_is_left_first():
    target = Target("y", Task("y"), 0, 0, 1.0, 2.0, LogTransform())
    with pytest.raises(TypeError, match="float64"):
        without_doubles([[0.5]]).double()
    found = target.value(without_doubles([[0.5], [-0.25]]))
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx([math.exp(2.0), math.exp(0.5)])
    task = Task("c", "multiclass", ("a", "b", "c"))
    target = Target("c_probability_b", task, 1, 0, 0.0, 1.0, TargetTransform())
    odds = target.value(without_doubles([[0.0, 1.0, 0.5]])).item()
    assert odds == pytest.approx(1.0 - math.log(1.0 + math.exp(0.5)))


def test_a_class_is_worth_the_log_odds_of_its_calibrated_probability():
    outputs = 3 * torch.randn(2, 5, 4, dtype=torch.float64)  # of members and molecules
    scaling = ProbabilityScaling(0.5, (0.3, -1.2, 0.4))
    task = Task("c", "multiclass", ("a", "b", "c"))
    for place in range(3):
        target = Target("c", task, 1 + place, 1, 0.0, 1.0, TargetTransform(), scaling)
        for member, found in zip(outputs, target.value(outputs), strict=True):
            chance = scaling(member[:, 1:].numpy())[:, place]
            assert found.tolist() == pytest.approx(np.log(chance / (1 - chance)).tolist())
    task = Task("c", "binary", ("a", "b"))
    scaling = ProbabilityScaling(0.5, (0.3, -1.2))
    target = Target("c", task, 2, 2, 0.0, 1.0, TargetTransform(), scaling)
    torch.testing.assert_close(target.value(outputs), 0.5 * outputs[..., 2] - 1.5)
