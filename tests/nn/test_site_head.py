"""The head of atoms and bonds against its formula, in both directions of a bond."""

import numpy as np
import torch

from molattn.nn.site_head import SiteHead, bond_vectors


def test_head_is_its_formula():
    torch.manual_seed(0)
    head = SiteHead(6, 8, 2, dropout=0.5).double().eval()
    head.mean.copy_(torch.tensor([3.0, 0.0]))
    head.scale.copy_(torch.tensor([2.0, 1.0]))
    vectors = torch.randn(5, 6).double()
    x = vectors.numpy()
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    first, last = head.mlp[0], head.mlp[3]
    hidden = x @ first.weight.detach().numpy().T + first.bias.detach().numpy()
    hidden = hidden / (1 + np.exp(-hidden))
    expected = hidden @ last.weight.detach().numpy().T + last.bias.detach().numpy()
    outputs = head(vectors)
    np.testing.assert_allclose(outputs.detach().numpy(), expected, rtol=1e-12, atol=1e-14)
    in_own_units = head.in_own_units(outputs).detach().numpy()
    np.testing.assert_allclose(in_own_units, expected * [2.0, 1.0] + [3.0, 0.0], rtol=1e-12)


def test_bond_is_represented_alike_in_both_directions():
    first, second = torch.randn(2, 4, 3)
    forward, backward = torch.randn(2, 4, 2)
    bonds = bond_vectors(first, second, forward, backward)
    a, b, e, f = (x.numpy() for x in (first, second, forward, backward))
    np.testing.assert_allclose(bonds, np.hstack([a + b, abs(a - b), e + f]), rtol=1e-6)
    assert torch.equal(bonds, bond_vectors(second, first, backward, forward))
