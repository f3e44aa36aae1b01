import math

import pytest
import torch

from molattn.explain.target import Target
from molattn.model.target_transform import LogTransform, TargetTransform
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
