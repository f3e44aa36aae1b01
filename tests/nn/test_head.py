"""Heads against their formulas, and the Gaussian kernel that one of them begins as."""

import numpy as np
import pytest
import torch

from molattn.nn.head import FourierHead, MLPHead

CHANNELS, NUMBERS, OUT = 6, 3, 2


def inputs(rows=5):
    generator = torch.Generator().manual_seed(1)
    sizes = (CHANNELS, NUMBERS)
    return [torch.randn(rows, size, generator=generator).double() * 3 for size in sizes]


def weights(layer):
    return layer.weight.detach().numpy(), layer.bias.detach().numpy()


def test_mlp_is_its_formula():
    head = MLPHead(CHANNELS, NUMBERS, 8, OUT, dropout=0.5).double().eval()
    h, z = inputs()
    (w, b), (v, c) = weights(head[0]), weights(head[3])
    hidden = np.hstack([h, z]) @ w.T + b
    expected = (hidden / (1 + np.exp(-hidden))) @ v.T + c
    np.testing.assert_allclose(head(h, z).detach().numpy(), expected, rtol=1e-12)


def test_fourier_is_its_formula():
    head = FourierHead(CHANNELS, NUMBERS, 8, OUT, dropout=0.5).double().eval()
    h, z = inputs()
    (w, b), (v, c) = weights(head.features), weights(head.out)
    x = h.numpy()
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    features = np.sqrt(2 / 8) * np.cos(np.hstack([x, z]) @ w.T + b)
    expected = features @ v.T + c
    np.testing.assert_allclose(head(h, z).detach().numpy(), expected, rtol=1e-12)


def test_fourier_features_begin_as_a_gaussian_kernel():
    count = 40_000
    torch.manual_seed(0)
    head = FourierHead(CHANNELS, NUMBERS, count, OUT, dropout=0.0).double()
    kept = []
    head.dropout.register_forward_hook(lambda *values: kept.append(values[-1]))
    h, z = inputs()
    head(h, z)
    x = torch.cat([torch.nn.functional.layer_norm(h, (CHANNELS,)), z], dim=-1)
    expected = torch.exp(-(torch.cdist(x, x) ** 2) / (2 * (CHANNELS + NUMBERS)))
    assert float(expected.min()) < 0.1 < 0.3 < float(expected.fill_diagonal_(0).max())
    found = (kept[0] @ kept[0].T).fill_diagonal_(0)
    # Its standard deviation is at most 1 / sqrt(count).
    assert float((found - expected).detach().abs().max()) < 5 * count**-0.5


@pytest.mark.parametrize("kind", [MLPHead, FourierHead])
def test_heads_read_molecules_without_numbers_and_a_molecule_alone(kind):
    head = kind(CHANNELS, 0, 8, OUT, 0.0).double()
    h, _ = inputs()
    together = head(h)
    assert together.shape == (5, OUT)
    torch.testing.assert_close(torch.cat([head(row[None]) for row in h]), together)
    assert head(h[:0]).shape == (0, OUT)


@pytest.mark.parametrize("kind", [MLPHead, FourierHead])
def test_all_weights_of_a_head_learn(kind):
    torch.manual_seed(0)
    head = kind(CHANNELS, NUMBERS, 8, OUT, 0.0).double()
    head(*inputs()).square().sum().backward()
    assert all(bool((weight.grad != 0).any()) for weight in head.parameters())
