"""A mask is a choice of edges: causal, arbitrary and cross attention through EdgeAttentionConv."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from molattn.nn import EdgeAttentionConv
from molattn.nn import functional as F

DOUBLE = torch.float64
ROWS = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]], dtype=DOUBLE)
VALUES = torch.tensor([[10, 0, 0, 0], [0, 10, 0, 0], [5, 5, 0, 0]], dtype=DOUBLE)


def assert_near(got, expected, tolerance=1e-10):
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance)


def as_edges(mask):
    """Sender and receiver of each pair that a mask ``[receivers, senders]`` lets through."""
    receiver, sender = mask.nonzero().T
    return torch.stack([sender, receiver])


def identity_layer():
    """Queries and keys are the nodes themselves, values the edge features."""
    conv = EdgeAttentionConv(
        4, 4, edge_dim=4, combine="concat", root_weight=False, bias=False
    ).double()
    with torch.no_grad():
        for lin, weight in (
            (conv.lin_query, torch.eye(4)),
            (conv.lin_key, torch.eye(4)),
            (conv.lin_value, torch.zeros(4, 4)),
            (conv.lin_edge_key, torch.zeros(4, 4)),
            (conv.lin_edge_value, torch.eye(4)),
        ):
            lin.weight.copy_(weight)
    return conv


@pytest.mark.parametrize(
    "mask, expected",
    [
        (
            torch.ones(3, 3, dtype=torch.bool),
            [[6.33478197, 3.66521803, 0, 0], [3.66521803, 6.33478197, 0, 0], [5, 5, 0, 0]],
        ),
        (
            torch.ones(3, 3).tril().bool(),
            [[10, 0, 0, 0], [2.68941421, 7.31058579, 0, 0], [5, 5, 0, 0]],
        ),
    ],
    ids=["full", "causal"],
)
def test_oracle_4_full_and_causal(mask, expected):
    edge_index = as_edges(mask)
    out = identity_layer()(ROWS, edge_index, VALUES[edge_index[0]])
    assert_near(out, torch.tensor(expected, dtype=DOUBLE), 5e-9)


@given(bits=st.lists(st.booleans(), min_size=15, max_size=15), seed=st.integers(0, 999))
def test_any_mask_equals_dense_attention_with_it(bits, seed):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.tensor(bits).view(3, 5)
    query, key, value = (torch.randn(n, 4, generator=generator, dtype=DOUBLE) for n in (3, 5, 5))
    edge_index = as_edges(mask)
    conv = identity_layer()
    out = conv((key, query), edge_index, value[edge_index[0]])
    assert_near(out, F.attention(query, key, value, mask))


@pytest.mark.parametrize("masked", [False, True])
def test_cross_attention_equals_multihead_attention(masked):
    """Ligand and pocket: other nodes send than receive, of other widths."""
    mha = torch.nn.MultiheadAttention(8, 2, kdim=5, vdim=5, batch_first=True, dtype=DOUBLE)
    conv = EdgeAttentionConv((5, 8), 8, 2, root_weight=False).double()
    with torch.no_grad():
        biases = torch.randn(24, dtype=DOUBLE)
        mha.in_proj_bias.copy_(biases)
        for lin, weight, bias in zip(
            (conv.lin_query, conv.lin_key, conv.lin_value),
            (mha.q_proj_weight, mha.k_proj_weight, mha.v_proj_weight),
            biases.chunk(3),
            strict=True,
        ):
            lin.weight.copy_(weight)
            lin.bias.copy_(bias)
        conv.head_combine.lin.weight.copy_(mha.out_proj.weight)
        conv.bias.copy_(mha.out_proj.bias.normal_())
    receivers = torch.randn(4, 8, dtype=DOUBLE, requires_grad=True)
    senders = torch.randn(6, 5, dtype=DOUBLE, requires_grad=True)
    mask = torch.ones(4, 6, dtype=torch.bool)
    if masked:
        mask = torch.rand(4, 6) < 0.5
        mask[:, 0] = True  # torch gives NaN to a query that may attend to nothing
    expected, weights = mha(
        receivers[None], senders[None], senders[None], attn_mask=~mask, average_attn_weights=False
    )
    edge_index = as_edges(mask)
    out, (_, alpha) = conv((senders, receivers), edge_index, return_attention_weights=True)
    assert_near(out, expected[0])
    assert_near(alpha, weights[0, :, edge_index[1], edge_index[0]].T)
    upstream = torch.randn_like(out)
    for got, want in zip(
        torch.autograd.grad((out * upstream).sum(), [receivers, senders]),
        torch.autograd.grad((expected[0] * upstream).sum(), [receivers, senders]),
        strict=True,
    ):
        assert_near(got, want)
