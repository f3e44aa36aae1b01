"""The primitive against text-book numbers, torch and plain NumPy."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from molattn.nn.functional import (
    DenseRows,
    ScatteredEdges,
    attention,
    normalize,
    score,
)

INF = math.inf
DOUBLE = torch.float64
# Text-book example 1: keys are values' indices, one query.
KEYS = torch.tensor(
    [[0, 0, 0], [2, 0, 1], [1, -1, -2], [2, 3, 1], [-2, 0, 0], [0, 2, 1]], dtype=DOUBLE
)
VALUES = torch.tensor([[0, -0.2, 0.3, 0.4, 0, 0.1]], dtype=DOUBLE).T
QUERY = torch.tensor([[0, 2, 1]], dtype=DOUBLE)


def double(rows):
    return torch.tensor(rows, dtype=DOUBLE)


def assert_near(got, expected, tolerance=5e-9):
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance)


def test_oracle_1_logits_and_weights():
    assert score(QUERY, KEYS, "dot").tolist() == [[0, 1, -4, 7, 0, 5]]
    _, weights = attention(QUERY, KEYS, VALUES, score="dot", return_weights=True)
    expected = [0.00080014, 0.00217500, 0.00001466, 0.87745891, 0.00080014, 0.11875115]
    assert_near(weights, double([expected]))


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"score": "dot"}, 0.36242808),
        ({"score": "scaled_dot"}, 0.30778976),
        ({"score": "dot", "temperature": 2.0}, 0.28880824),
        ({"score": "dot", "temperature": 0.0}, 0.4),
        ({"score": "dot", "temperature": INF}, 0.1),
    ],
)
def test_oracle_1_outputs(options, expected):
    assert_near(attention(QUERY, KEYS, VALUES, **options), double([[expected]]))


def test_oracle_3_projected_self_attention():
    x = double([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1]])
    w = double([[1, 0], [0, 1], [1, 0], [0, 1]])
    q = x @ w
    assert q.tolist() == [[2, 0], [0, 2], [1, 1], [1, 1]]
    out, weights = attention(q, q, q, return_weights=True)
    assert_near(weights[0], double([0.64710711, 0.03824775, 0.15732257, 0.15732257]))
    expected = [[1.60885937, 0.39114063], [0.39114063, 1.60885937], [1, 1], [1, 1]]
    assert_near(out, double(expected))


@pytest.mark.parametrize(
    "mask, expected",
    [
        (None, [[6.33478197, 3.66521803, 0, 0], [3.66521803, 6.33478197, 0, 0], [5, 5, 0, 0]]),
        (
            torch.ones(3, 3).tril().bool(),
            [[10, 0, 0, 0], [2.68941421, 7.31058579, 0, 0], [5, 5, 0, 0]],
        ),
    ],
    ids=["full", "causal"],
)
def test_oracle_4_full_and_causal(mask, expected):
    x = double([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]])
    v = double([[10, 0, 0, 0], [0, 10, 0, 0], [5, 5, 0, 0]])
    assert_near(attention(x, x, v, mask), double(expected))


def test_equals_scaled_dot_product_attention():
    q, k, v = (torch.randn(2, 3, n, 8, dtype=DOUBLE, requires_grad=True) for n in (5, 7, 7))
    mask = torch.rand(2, 1, 5, 7) < 0.6
    mask[..., 0] = True
    ours, torchs = attention(q, k, v, mask), scaled_dot_product_attention(q, k, v, mask)
    assert_near(ours, torchs, 1e-12)
    upstream = torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad((ours * upstream).sum(), (q, k, v)),
        torch.autograd.grad((torchs * upstream).sum(), (q, k, v)),
        strict=True,
    ):
        assert_near(a, b, 1e-12)


@given(
    index=st.lists(st.integers(0, 4), max_size=30),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 50.0, INF]),
    seed=st.integers(0, 99),
)
def test_both_forms_of_normalize_agree(index, temperature, seed):
    """An edge list equals a dense row with a mask; multi-edges take a column of their own."""
    receiver = torch.tensor(index, dtype=torch.long)
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(-3, 4, (len(index),), generator=generator).to(DOUBLE)
    scattered = normalize(logits, ScatteredEdges(receiver, 5), temperature)
    mask = receiver == torch.arange(5).unsqueeze(-1)  # [receivers, edges]
    dense = normalize(logits.expand(5, -1), DenseRows(mask), temperature)
    assert_near(dense[receiver, torch.arange(len(index))], scattered, 1e-15)
    assert bool((dense[~mask] == 0).all())
    has_edges = mask.any(-1).to(DOUBLE)
    assert_near(dense.sum(-1), has_edges, 1e-12)


@pytest.mark.parametrize("temperature", [0.0, 1.0, INF])
def test_rows_without_edges_have_zero_values_and_gradients(temperature):
    logits = torch.randn(2, 3, requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    weights = normalize(logits, DenseRows(mask), temperature)
    assert weights[1].tolist() == [0, 0, 0]
    (weights * torch.randn(2, 3)).sum().backward() if weights.requires_grad else None
    assert logits.grad is None or bool(logits.grad.isfinite().all())
    assert attention(logits, torch.ones(0, 3), torch.ones(0, 5)).tolist() == [[0] * 5] * 2


@pytest.mark.parametrize("huge", [1e4, 1e30])
def test_huge_logits_stay_finite(huge):
    """Masked logits far above the others must not overflow either."""
    logits = torch.tensor([[huge, -huge, 0.0], [0.0, -huge, huge]], requires_grad=True)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    weights = normalize(logits, DenseRows(mask))
    assert weights.tolist() == [[1, 0, 0], [1, 0, 0]]
    weights.square().sum().backward()
    assert bool(logits.grad.isfinite().all())


@pytest.mark.parametrize("most", [math.inf, 3e38, 1.0, 0.0, -1e30])
def test_temperature_zero_takes_the_maximum_of_any_size(most):
    logits = torch.tensor([[most, most - abs(most) / 2 - 1.0, most], [most, most, -math.inf]])
    logits[0, 1] = -1e38 if most == math.inf else logits[0, 1]
    weights = normalize(logits, DenseRows(torch.tensor([[True] * 3, [True, True, False]])), 0.0)
    assert weights.tolist() == [[0.5, 0.0, 0.5], [0.5, 0.5, 0.0]]


@pytest.mark.parametrize(
    "dtype, near, far",
    [(torch.float64, 40, 56), (torch.float32, 40, 56), (torch.bfloat16, 1, 3)],
)
def test_at_temperature_zero_logits_that_differ_by_rounding_are_ties(dtype, near, far):
    """Up to 32 times the precision of the type, or once that of half precision: 48 or 1.5 units."""
    steps = torch.tensor([near, 0, far]) * torch.finfo(dtype).eps
    logits = (-1.5 - steps.double()).to(dtype)
    for receivers in (DenseRows(None), ScatteredEdges(torch.zeros(3, dtype=torch.long), 1)):
        assert normalize(logits, receivers, 0.0).tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_half_precision_is_normalized_in_single_precision(temperature):
    logits = torch.randn(300, generator=torch.Generator().manual_seed(0)).bfloat16()
    receiver = torch.zeros(300, dtype=torch.long)
    expected = (logits.double() / temperature).softmax(0)
    for receivers in (DenseRows(None), ScatteredEdges(receiver, 1)):
        weights = normalize(logits, receivers, temperature).double()
        torch.testing.assert_close(weights, expected, rtol=1.01 * 2**-8, atol=0)  # of one rounding
