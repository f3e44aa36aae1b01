"""Linear maps by oneDNN against torch's own."""

import pytest
import torch
import torch.fx
from torch.autograd import forward_ad
from torch.func import grad, jvp, vmap
from torch.nn import functional as F

from molattn.nn.dense.linear import linear

X, W, B = (300, 40), (50, 40), (50,)


def _inputs(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("shapes", [(X, W, B), (X, W)])
def test_linear_and_its_first_and_second_gradients_are_those_of_torch(shapes) -> None:
    inputs = _inputs(*shapes)
    results = []
    for product in (linear, F.linear):
        y = product(*inputs)
        first = torch.autograd.grad((y**3).sum(), inputs, create_graph=True)
        second = torch.autograd.grad(sum((g**2).sum() for g in first), inputs)
        results.append([y, *first, *second])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4 * theirs.abs().max().item())


@pytest.mark.parametrize("frozen", [0, 1])
def test_what_needs_no_gradient_gets_none(frozen: int) -> None:
    inputs = _inputs(X, W)
    inputs[frozen].requires_grad_(False)
    linear(*inputs).sum().backward()
    assert inputs[frozen].grad is None
    assert inputs[1 - frozen].grad is not None


def test_function_transforms_see_through_it() -> None:
    x, weight = (t.detach() for t in _inputs(X, W))
    many = torch.stack([x, 2 * x])
    torch.testing.assert_close(vmap(linear, (0, None))(many, weight), F.linear(many, weight))
    for_each = vmap(grad(lambda w, x: linear(x, w).square().sum()), (None, 0))(weight, many)
    expected = torch.stack([2 * (x @ weight.T).T @ x, 8 * (x @ weight.T).T @ x])
    torch.testing.assert_close(for_each, expected, rtol=1e-4, atol=1e-2)
    tangent = torch.ones_like(x)
    _, along = jvp(lambda x: linear(x, weight), (x,), (tangent,))
    torch.testing.assert_close(along, F.linear(tangent, weight))
    with forward_ad.dual_level():
        dual = linear(forward_ad.make_dual(x, tangent), weight)
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, along)


def test_batches_of_gradients_go_back_through_it() -> None:
    x, weight = _inputs(X, W)
    upstream = torch.randn(3, 300, 50)
    (many,) = torch.autograd.grad(linear(x, weight), weight, upstream, is_grads_batched=True)
    torch.testing.assert_close(many, upstream.mT @ x.detach(), rtol=1e-4, atol=1e-3)


def _gradients(y: torch.Tensor, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The output, with first and second derivatives."""
    first = torch.autograd.grad((y.float() ** 2).sum(), inputs, create_graph=True)
    second = torch.autograd.grad(sum((g.float() ** 2).sum() for g in first), inputs)
    return [y, *first, *second]


@pytest.mark.parametrize("rows", [128, 130])
def test_autocast_to_bfloat16_gives_what_torch_gives(rows: int) -> None:
    inputs = _inputs((rows, 40), W, B)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = [product(*inputs) for product in (linear, F.linear)]
    assert outputs[0].dtype == torch.bfloat16
    exact = _gradients(F.linear(*inputs), inputs)
    for got, expected, true in zip(*(_gradients(y, inputs) for y in outputs), exact, strict=True):
        assert got.dtype == expected.dtype
        worst = true.abs().max().item()
        torch.testing.assert_close(got.float(), expected.float(), rtol=0, atol=0.02 * worst)
