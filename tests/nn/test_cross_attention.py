import math

import pytest
import torch

from molattn.nn.attention_heads import COMBINES
from molattn.nn.encoder import CrossAttention
from molattn.nn.functional import SCORES

SIZES = [(3, 5), (1, 1), (4, 1), (1, 2)]


def blocks(sizes, channels=8):
    """Nodes of pairs of graphs, padded, with what is padding full of large numbers."""
    longest = [max(n) for n in zip(*sizes, strict=True)]
    x, y = (torch.full((len(sizes), n, channels), 1e3, dtype=torch.float64) for n in longest)
    mask = torch.zeros(len(sizes), longest[1], dtype=torch.bool)
    for place, (n, m) in enumerate(sizes):
        x[place, :n], y[place, :m] = torch.randn(n, channels), torch.randn(m, channels)
        mask[place, :m] = True
    return x, y, mask


@pytest.mark.parametrize("combine", COMBINES)
@pytest.mark.parametrize("score", SCORES)
def test_dense_attention_is_that_of_the_layer_on_all_pairs_as_edges(score, combine):
    block = CrossAttention(8, 2, score=score, combine=combine).double()
    torch.nn.init.normal_(block.conv.bias)
    x, y, mask = blocks(SIZES)
    dense = block.attend(x, y, mask)
    for place, (n, m) in enumerate(SIZES):
        pairs = torch.cartesian_prod(torch.arange(m), torch.arange(n)).t()
        ours, theirs = x[place, :n], y[place, :m]
        expected = block.conv((theirs, ours), pairs)
        torch.testing.assert_close(dense[place, :n], expected, rtol=1e-10, atol=1e-12)


def test_the_order_of_senders_does_not_matter_and_receivers_follow_theirs():
    block = CrossAttention(8, 2, score="gatv2").double()
    x, y, _ = blocks([(4, 6), (4, 6)])
    out = block(x, y)
    torch.testing.assert_close(block(x, y[:, torch.randperm(6)]), out, rtol=0, atol=1e-12)
    order = torch.randperm(4)
    torch.testing.assert_close(block(x[:, order], y), out[:, order], rtol=0, atol=1e-12)


def test_gradients_are_finite_and_stay_within_a_pair():
    block = CrossAttention(8, 2, score="additive").double()
    x, y, mask = blocks(SIZES)
    x.requires_grad_(), y.requires_grad_()
    block(x, y, mask)[1, :1].sum().backward()
    for tensor, sizes in ((x, [n for n, _ in SIZES]), (y, [m for _, m in SIZES])):
        assert tensor.grad.isfinite().all()
        assert (tensor.grad[[0, 2, 3]] == 0).all()
        assert (tensor.grad[1, sizes[1] :] == 0).all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in block.parameters())


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_padding_may_hold_anything(value):
    block = CrossAttention(8, 2)
    x, y, mask = (part.float() if part.is_floating_point() else part for part in blocks(SIZES))
    expected = block(x, y, mask)
    y = y.masked_fill(~mask.unsqueeze(-1), value).requires_grad_()
    out = block(x, y, mask)
    assert torch.equal(out, expected)
    (gradient,) = torch.autograd.grad(out.sum(), y)
    assert gradient.isfinite().all()


def test_a_graph_with_nobody_to_attend_to_is_left_to_itself():
    block = CrossAttention(8, 2).double()
    x, y, _ = blocks([(2, 3)])
    nothing = block.attend(x, y, torch.zeros(1, 3, dtype=torch.bool))
    torch.testing.assert_close(nothing, block.conv.bias.expand_as(nothing))
