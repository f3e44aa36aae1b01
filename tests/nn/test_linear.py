"""Linear maps by oneDNN against torch's own."""

import pytest
import torch
import torch.fx
from torch.autograd import forward_ad
from torch.func import grad, jacrev, jvp, vmap
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from molattn.graph import CompleteGraphs
from molattn.nn import EdgeAttentionConv
from molattn.nn.linear import _HAS_BF16, _ONEDNN, Linear, linear, side_by_side, split

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


def test_input_without_columns_gives_the_bias() -> None:
    bias = torch.randn(4)
    assert torch.equal(linear(torch.ones(200, 0), torch.ones(4, 0), bias), bias.expand(200, 4))


def test_strided_input_is_read_as_it_lies() -> None:
    wide, weight = _inputs((300, 80), W)
    torch.testing.assert_close(linear(wide[:, ::2], weight), F.linear(wide[:, ::2], weight))


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


def test_function_transforms_see_through_a_layer() -> None:
    conv, x = EdgeAttentionConv(4, 8, heads=2), torch.randn(6, 4)
    edges = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])

    def run(x: torch.Tensor) -> torch.Tensor:
        return conv(x, edges)

    expected = torch.autograd.functional.jacobian(run, x)
    torch.testing.assert_close(jacrev(run)(x), expected)
    summed = grad(lambda x: run(x).sum())(x)
    torch.testing.assert_close(summed, expected.sum(dim=(0, 1)))


@pytest.mark.parametrize("rows", [128, 129, 255, 256, 300])
def test_any_number_of_rows_gives_what_torch_gives(rows: int) -> None:
    inputs = _inputs((rows, 40), W, B)
    ours, theirs = (
        [y, *torch.autograd.grad(y.square().sum(), inputs)]
        for y in (linear(*inputs), F.linear(*inputs))
    )
    for got, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-2)


def test_batches_of_gradients_go_back_through_it() -> None:
    x, weight = _inputs(X, W)
    upstream = torch.randn(3, 300, 50)
    (many,) = torch.autograd.grad(linear(x, weight), weight, upstream, is_grads_batched=True)
    torch.testing.assert_close(many, upstream.mT @ x.detach(), rtol=1e-4, atol=1e-3)


def test_gradients_without_memory_of_their_own_are_laid_out_first() -> None:
    x, weight = _inputs(X, W)
    linear(x, weight).sum().backward()  # the gradient is one number, expanded
    assert x.grad is not None
    torch.testing.assert_close(x.grad, weight.detach().sum(dim=0).expand(X), rtol=1e-4, atol=1e-4)


def test_shapes_that_do_not_fit_raise_as_in_torch() -> None:
    x, weight = _inputs((300, 41), W)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        linear(x, weight)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_number_types_are_left_to_torch(dtype: torch.dtype) -> None:
    x, weight = (t.detach().to(dtype) for t in _inputs(X, W))
    assert torch.equal(linear(x, weight), F.linear(x, weight))


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


def test_in_autocast_the_step_of_onednn_is_taken_where_the_cpu_has_bfloat16() -> None:
    inputs = _inputs(X, W, B)
    with torch.autocast("cpu", torch.bfloat16):
        name = type(linear(*inputs).grad_fn).__name__
    assert ("OneDNN" in name) == (_ONEDNN is not None and _HAS_BF16)


def test_a_module_can_be_traced_symbolically() -> None:
    layer, x = Linear(40, 5), torch.randn(X)
    torch.testing.assert_close(torch.fx.symbolic_trace(layer)(x), layer(x))


def test_a_module_of_unknown_width_settles_on_first_use() -> None:
    layer = Linear(-1, 7)
    assert layer(torch.randn(300, 5)).shape == (300, 7)
    assert layer.weight.shape == (7, 5)


def test_columns_come_apart_and_their_gradients_together() -> None:
    (x,) = _inputs((6, 12))
    parts = split(x, (3, 4, 5))
    assert [part.shape[1] for part in parts] == [3, 4, 5]
    (parts[0].sum() + 2 * parts[2].sum()).backward()
    expected = torch.tensor([1.0] * 3 + [0.0] * 4 + [2.0] * 5).expand(6, 12)
    assert x.grad is not None
    assert torch.equal(x.grad, expected)


def test_side_by_side_finds_columns_in_order_and_nothing_else() -> None:
    x = torch.randn(6, 12)
    a, b, c = x[:, 2:12].split((2, 4, 4), dim=-1)
    whole = side_by_side(a, b.view(6, 2, 2), c)
    assert whole is not None
    assert torch.equal(whole, x[:, 2:12])
    assert whole.data_ptr() == x[:, 2:].data_ptr()
    assert side_by_side(a, c, b) is None
    assert side_by_side(a, c) is None
    assert side_by_side(a, b.clone(), c) is None
    assert side_by_side(x[:3, :2], x[:, 2:4]) is None
    assert side_by_side(x[:, :2].t(), x[:, 2:4].t()) is None


def test_hooks_before_the_gradient_have_their_effect() -> None:
    conv, x = EdgeAttentionConv(4, 4), torch.randn(3, 4, requires_grad=True)
    conv.lin_key.register_full_backward_pre_hook(lambda module, grads: (0 * grads[0],))
    conv(x, torch.tensor([[0, 1, 2], [2, 2, 2]])).square().sum().backward()
    assert not conv.lin_key.weight.grad.any()
    assert conv.lin_value.weight.grad.any()


@pytest.mark.parametrize("name", ["lin_query", "lin_key", "lin_value"])
def test_a_forward_that_is_set_on_a_map_is_called(name) -> None:
    graphs, x = CompleteGraphs([2, 3]), torch.randn(5, 4)
    conv, low_rank = EdgeAttentionConv(4, 4, 2), torch.randn(4, 4)
    lin = getattr(conv, name)
    plain = lin.forward
    lin.forward = lambda x: plain(x) + x @ low_rank
    found = conv(x, graphs.edge_index), graphs.rows_to_nodes(conv(graphs.nodes_to_rows(x), graphs))
    del lin.forward
    with torch.no_grad():
        lin.weight += low_rank.T
    for one in found:
        torch.testing.assert_close(one, conv(x, graphs.edge_index))


def test_hooks_of_all_modules_have_their_effect() -> None:
    conv, x = EdgeAttentionConv(4, 4), torch.randn(5, 4)

    def hook(module, given, out):
        return 0 * out if module is conv.lin_value else None

    with torch.nn.modules.module.register_module_forward_hook(hook):
        found = conv(x, torch.zeros(2, 0, dtype=torch.int64))
        of_edges = conv(x, torch.tensor([[0, 1], [2, 2]]))
    torch.testing.assert_close(of_edges, found)


def test_hooks_that_only_watch_leave_the_fused_step(monkeypatch) -> None:
    """Such as those of torch's counter of operations."""
    monkeypatch.setattr(EdgeAttentionConv, "_attend_edge_list", None)
    graphs = CompleteGraphs([2, 3])
    conv = EdgeAttentionConv(4, 4, 2, edge_dim=3)
    x, e = torch.randn(graphs.num_rows, 4), torch.randn(graphs.num_pairs, 3)
    with FlopCounterMode(display=False):
        found = conv(x, graphs, e)
    torch.testing.assert_close(found, conv(x, graphs, e))
