import numpy as np
import pytest
import torch
from torch_geometric.nn import aggr

from molattn.nn.readout import READOUTS, Readout

WIDTH = 6
SIZES = [3, 0, 1, 5, 0]
INDEX = torch.repeat_interleave(torch.arange(5), torch.tensor(SIZES))

every_readout = pytest.mark.parametrize("name", [*READOUTS, "mean+set2set"])


def atoms():
    return torch.randn(sum(SIZES), WIDTH, dtype=torch.float64, requires_grad=True)


@every_readout
def test_the_order_of_atoms_does_not_matter(name):
    readout, x = Readout(name, WIDTH).double(), atoms()
    order = torch.tensor([2, 0, 1, 3, 8, 4, 7, 5, 6])
    torch.testing.assert_close(readout(x[order], INDEX, 5), readout(x, INDEX, 5))


@every_readout
def test_molecules_do_not_see_each_other(name):
    readout, x = Readout(name, WIDTH).double(), atoms()
    out = readout(x, INDEX, 5)
    assert out.shape == (5, readout.out_channels)
    for k, size in enumerate(SIZES):
        alone = readout(x[k == INDEX], torch.zeros(size, dtype=torch.long), 1)
        torch.testing.assert_close(alone, out[k : k + 1])
    (gradient,) = torch.autograd.grad(out[3].sum(), x)
    assert not gradient[INDEX != 3].any()


@every_readout
def test_molecules_without_atoms_give_zero(name):
    readout, x = Readout(name, WIDTH).double(), atoms()
    assert not readout(x, INDEX, 5)[[1, 4]].any()
    assert not readout(x[:0], INDEX[:0], 2).any()
    assert readout(x[:0], INDEX[:0], 2).shape == (2, readout.out_channels)


@every_readout
@pytest.mark.parametrize("equal", [False, True])
def test_gradients_are_finite_and_reach_every_molecule(name, equal):
    readout = Readout(name, WIDTH).double()
    x = torch.ones_like(atoms()).requires_grad_() if equal else atoms()
    readout(x, INDEX, 5).square().sum().backward()
    assert x.grad.isfinite().all()
    if not equal and name != "std":  # one atom does not vary
        assert all(x.grad[k == INDEX].any() for k in (0, 2, 3))
    for parameter in readout.parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all()


@pytest.mark.parametrize("name", ["mean", "sum", "max", "min", "std", "median"])
def test_plain_statistics_against_numpy(name):
    x = atoms()
    out = Readout(name, WIDTH)(x, INDEX, 5).detach().numpy()
    # Of an even number of atoms, PyG's median is the lower one; all molecules here are odd.
    for k in (0, 2, 3):
        expected = getattr(np, name)(x[k == INDEX].detach().numpy(), axis=0)
        np.testing.assert_allclose(out[k], expected, atol=0.01 if name == "std" else 1e-12)


def test_names_of_pygs_own_classes_serve_too():
    x, index = torch.rand(5, 4), torch.tensor([0, 0, 1, 1, 1])
    readout = Readout("PowerMeanAggregation+mean", 4)
    expected = aggr.PowerMeanAggregation()(x, index)
    torch.testing.assert_close(readout(x, index, 2)[:, :4], expected)
    with pytest.raises(ValueError, match="needs arguments"):
        Readout("QuantileAggregation", 4)
    with pytest.raises(ValueError, match="got 'Data', expected one of mean"):
        Readout("Data", 4)
