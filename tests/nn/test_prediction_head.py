"""Heads against their formulas, and the Gaussian kernel that one of them begins as."""

import numpy as np
import pytest
import torch

from molattn.nn.prediction_head import PREDICTION_HEADS, FourierHead, MLPHead

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
    np.testing.assert_allclose(head(h, z).detach().numpy(), expected, rtol=1e-12, atol=1e-14)


def test_fourier_is_its_formula():
    head = FourierHead(CHANNELS, NUMBERS, 8, OUT, dropout=0.5).double().eval()
    h, z = inputs()
    w, b = head.directions.detach().numpy(), head.phases.detach().numpy()
    v, c = weights(head.out)
    x = h.numpy()
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    w = w / np.linalg.norm(w, axis=1, keepdims=True)
    features = np.sqrt(2 / 32) * np.cos(np.hstack([x, z]) @ w.T + b)
    expected = features @ v.T + c
    np.testing.assert_allclose(head(h, z).detach().numpy(), expected, rtol=1e-12, atol=1e-14)


def test_fourier_features_begin_as_a_gaussian_kernel():
    channels, numbers = 200, 100
    head = FourierHead(channels, numbers, 10_000, OUT, dropout=0.0).double()
    kept = []
    head.dropout.register_forward_hook(lambda *values: kept.append(values[-1].detach()))
    h, z = torch.randn(6, channels).double(), torch.randn(6, numbers).double()
    h[1], z[1] = h[0] + 0.5 * h[1], z[0] + 0.5 * z[1]  # a near pair
    z[2] *= 3.0  # and a molecule that is far from all
    head(h, z)
    x = torch.cat([torch.nn.functional.layer_norm(h, (channels,)), z], dim=-1)
    expected = torch.exp(-(torch.cdist(x, x) ** 2) / (2 * (channels + numbers)))
    assert float(expected[0, 1]) > 0.8
    assert float(expected[0, 2]) < 0.2
    found = kept[0] @ kept[0].T
    # The standard deviation is at most that of a feature over the root of their number; directions
    # of one length rather than Gaussian ones are worth at most some 2 / F.
    assert float((found - expected).abs().max()) < 5 / kept[0].size(1) ** 0.5 + 2 / x.size(1)


@pytest.mark.parametrize("kind", PREDICTION_HEADS.values(), ids=PREDICTION_HEADS)
def test_heads_read_molecules_without_numbers_and_a_molecule_alone(kind):
    head = kind(CHANNELS, 0, 8, OUT, 0.0).double()
    h, _ = inputs()
    together = head(h)
    assert together.shape == (5, OUT)
    torch.testing.assert_close(torch.cat([head(row[None]) for row in h]), together)
    assert head(h[:0]).shape == (0, OUT)
