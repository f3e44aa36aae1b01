import pytest
import torch

from molattn.graph import CodedEdges
from molattn.nn.embedding import CodeEmbedding, FixedPairEmbedding, PairEmbedding


def test_amounts_of_codes_mean_the_same_as_the_codes():
    embedding = CodeEmbedding([3, 2], 8)
    codes = torch.tensor([[2, 0], [0, 1]])
    amounts = torch.tensor([[0.0, 0, 1, 1, 0], [1, 0, 0, 0, 1]])
    torch.testing.assert_close(embedding(amounts), embedding(codes))
    torch.testing.assert_close(
        embedding(amounts.mean(0, keepdim=True))[0], embedding(codes).mean(0)
    )
    with pytest.raises(ValueError, match="codes"):
        embedding(torch.zeros(1, 2))


def test_pairs_may_be_joint_codes_component_codes_or_amounts():
    embedding = PairEmbedding(torch.tensor([[0, 0], [1, 0], [1, 1]]), [2, 2], 4)
    expected = embedding(torch.tensor([2, 0]))
    torch.testing.assert_close(embedding(torch.tensor([[1, 1], [0, 0]])), expected)
    torch.testing.assert_close(embedding(torch.tensor([[0.0, 1, 0, 1], [1, 0, 1, 0]])), expected)


def test_the_table_of_coded_edges_is_embedded():
    embedding = CodeEmbedding([3, 2], 8)
    table, codes = torch.tensor([[2, 0], [0, 1]]), torch.tensor([1, 0, 2, 1])
    embedded = embedding(CodedEdges(codes, table))
    assert embedded.codes is codes
    torch.testing.assert_close(embedded.table, embedding(table))


def test_a_code_beyond_its_column_is_refused():
    """It would be a code of the next column."""
    embedding = CodeEmbedding([3, 2], 8)
    with pytest.raises(IndexError, match="codes"):
        embedding(torch.tensor([[0, 1], [3, 0]]))
    assert embedding(torch.zeros(0, 2, dtype=torch.long)).shape == (0, 8)


def test_gradients_by_sample_and_hessians():
    torch.manual_seed(0)
    embed, codes = CodeEmbedding([3, 2], 4).double(), torch.tensor([[2, 0], [0, 1], [2, 1]])
    weight = embed.weight.detach()

    def loss(weight, row):
        return torch.func.functional_call(embed, {"weight": weight}, row.unsqueeze(0)).pow(3).sum()

    found = torch.func.vmap(torch.func.grad(loss), (None, 0))(weight, codes)
    expected = [
        torch.autograd.grad(embed(row.unsqueeze(0)).pow(3).sum(), embed.weight)[0] for row in codes
    ]
    torch.testing.assert_close(found, torch.stack(expected))
    hessian = torch.func.hessian(loss)(weight, codes[0]).reshape(20, 20)
    rows = weight.flatten().clone().requires_grad_()
    vector = rows.view(5, 4)[2] + rows.view(5, 4)[3]
    first = torch.autograd.grad(vector.pow(3).sum(), rows, create_graph=True)[0]
    second = torch.stack([torch.autograd.grad(one, rows, retain_graph=True)[0] for one in first])
    torch.testing.assert_close(hessian, second)


def test_a_code_below_0_is_named():
    with pytest.raises(IndexError, match=r"up to \[2, 1\] and down to \[0, -1\], expected less"):
        CodeEmbedding([3, 2], 4)(torch.tensor([[2, -1], [0, 1]]))


def test_fixed_features_stay_when_parameters_are_reset():
    table, values = torch.tensor([[0, 1], [1, 0]]), torch.arange(12.0).view(4, 3)
    embed = FixedPairEmbedding(table, [2, 2], values, torch.ones(3))
    before = embed(torch.tensor([0, 1]))
    embed.reset_parameters()
    assert torch.equal(embed(torch.tensor([0, 1])), before)
    assert not [*embed.parameters()]
