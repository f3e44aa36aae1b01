import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from molattn.config import MoleculesConfig
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.pretraining.batches import (
    MaskedLoader,
    PretrainingData,
    count_scaling,
    descriptor_scaling,
    draw_atoms,
    masked_pairs,
)
from molattn.pretraining.objective import GROUPS, Outputs, PretrainingObjective, code_entropies

from .conftest import SMALL


@pytest.fixture(
    scope="module",
    params=[{}, {"self_loops": False, "layer": "grit", "walk_length": 3}],
    ids=["loops", "no_loops"],
)
def objective(request, store):
    rows = np.arange(len(store))
    model = MolAttn(
        MolAttnConfig(descriptor_scaling(store, rows).names, replace(SMALL, **request.param))
    )
    means, variances = count_scaling(store, rows)
    batch = batches(model, store, masked=1.0).batch(rows, (0, 0))
    entropies = code_entropies(batch, model.config.featurizer.atom_sizes)
    scales = {"descriptors": 1.0, "columns": 1.0, **variances, **entropies}
    return PretrainingObjective(model, scales, torch.from_numpy(means)).eval()


def batches(model, store, size=None, **options):
    rows = np.arange(len(store))
    scaling = descriptor_scaling(store, rows)
    data = PretrainingData(store, scaling, MoleculesConfig(), rows, rows)
    return MaskedLoader(model, data, rows, size or len(rows), mask_seed=3, **options)


def with_targets(objective, *targets, columns=0):
    """Return an objective of the same model with fewer targets or with columns."""
    scales = dict(zip(GROUPS, [*objective.scales.tolist(), 1.0], strict=True))
    means = torch.zeros(objective.counts[-1].bias.size(0))
    return PretrainingObjective(objective.model, scales, means, targets, columns).eval()


def test_a_fraction_of_atoms_and_as_many_bonds_as_other_pairs_are_masked():
    chain = np.eye(27, k=1, dtype=bool) | np.eye(27, k=-1, dtype=bool)
    random = np.random.default_rng(0)
    draws = [draw_atoms(27, 0.15, random) for _ in range(500)]
    drawn = [(atoms, masked_pairs(chain, atoms, numbers)) for atoms, numbers in draws]
    assert {len(atoms) for atoms, _ in drawn} == {4}
    bonded = sum(chain[tuple(pairs)].sum() for _, pairs in drawn)
    pairs = sum(pairs.shape[1] for _, pairs in drawn)
    assert bonded / 500 == pytest.approx(0.5 * 4 * 2 * 26 / 27, rel=0.1)
    assert 0.4 < bonded / pairs < 0.7
    for atoms, (first, second) in drawn:
        assert (first < second).all()
        assert (np.isin(first, atoms) | np.isin(second, atoms)).all()
    assert len(draw_atoms(1, 0.15, random)[0]) == 1


def test_masked_codes_do_not_reach_the_network(objective, store):
    batch = batches(objective.model, store, masked=0.5).batch(np.arange(20), (0, 0))
    assert batch.pairs.numel() > 10
    assert len(batch.unmasked) == 10
    molecules = batch.molecules
    x, edges, masked = molecules.x.clone(), molecules.edge_attr.clone(), batch.pairs.flatten()
    x[batch.atoms] = 0
    edges[masked] = len(molecules.pair_codes) - 1 - edges[masked]  # bonds are the last codes
    other = batch._replace(molecules=replace(molecules, x=x, edge_attr=edges))
    one, two = (objective.outputs(some) for some in (batch, other))
    for first, second in zip((*one[:2], *one[2], one[3]), (*two[:2], *two[2], two[3]), strict=True):
        assert torch.equal(first, second)
    seen = next(row for row in molecules.edge_index.node_row if row not in batch.atoms)
    x[seen] += 1  # while anything else does
    assert not torch.equal(objective.outputs(other).descriptors, one.descriptors)


def test_masked_pairs_are_pairs_of_masked_atoms_with_their_bonds(objective, store):
    batch = batches(objective.model, store, masked=1.0).batch(np.arange(12), (1, 4))
    molecules, featurizer = batch.molecules, objective.model.config.featurizer
    graph = molecules.edge_index
    receiver = graph.receivers_to_pairs(torch.arange(graph.num_rows).unsqueeze(1)).squeeze(1)
    for rows, atoms in zip(batch.pairs, batch.pair_atoms, strict=True):
        assert torch.equal(receiver[rows], atoms)
        codes = molecules.pair_codes[molecules.edge_attr[rows].long()].numpy()
        np.testing.assert_array_equal(featurizer.pair_table[codes, 0], batch.bonds)
    assert torch.isin(batch.pair_atoms, batch.atoms).any(dim=0).all()
    assert torch.equal(batch.atom_codes, molecules.x[batch.atoms].long())
    # The parts of two processes have its masks.
    loader = batches(objective.model, store, masked=1.0)
    parts = [loader.batch(np.arange(12), (1, 4), np.arange(first, 12, 2)) for first in (0, 1)]
    assert sum(len(part.atoms) for part in parts) == len(batch.atoms)
    codes = [np.sort(np.concatenate([part.bonds for part in parts])), np.sort(batch.bonds)]
    np.testing.assert_array_equal(*codes)
    empty = loader.batch(np.arange(12), (1, 4), np.zeros(0, int))
    assert (empty.count, len(empty.atoms), len(empty.unmasked)) == (0, 0, 0)


def test_each_loss_of_an_uninformed_prediction_is_one(objective, store):
    count = len(store)
    whole = batches(objective.model, store, masked=0.0).batch(np.arange(count), (0, 0))
    masked = batches(objective.model, store, masked=1.0).batch(np.arange(count), (0, 0))
    featurizer = objective.model.config.featurizer

    def marginal(codes, size):
        part = torch.bincount(codes, minlength=size) / len(codes)
        return part.clamp(min=1e-30).log().expand(len(codes), -1)

    outputs = Outputs(
        torch.zeros_like(whole.descriptors),
        whole.counts.mean(dim=0).expand(count, -1),
        tuple(map(marginal, masked.atom_codes.unbind(1), featurizer.atom_sizes)),
        marginal(masked.bonds, featurizer.pair_sizes[0]),
    )
    batch = masked._replace(descriptors=whole.descriptors, counts=whole.counts)
    losses = objective.losses(outputs, batch)
    torch.testing.assert_close(losses, torch.ones(len(GROUPS) - 1), rtol=1e-3, atol=1e-3)


def test_the_loss_is_the_mean_of_its_groups_by_their_formulas(objective, store):
    batch = batches(objective.model, store, masked=0.5).batch(np.arange(20), (0, 0))
    outputs = objective.outputs(batch)
    known = ~batch.descriptors.isnan()
    expected = [
        F.mse_loss(outputs.descriptors[known], batch.descriptors[known]),
        *(
            F.mse_loss(outputs.counts[:, part], batch.counts[:, part])
            for part in (slice(0, 4096), slice(4096, 8192), slice(8192, None))
        ),
        sum(map(F.cross_entropy, outputs.atoms, batch.atom_codes.unbind(1))),
        F.cross_entropy(outputs.bonds, batch.bonds),
    ]
    total, count = objective(batch)
    mean = (torch.stack(expected) / objective.scales).mean()
    assert count == 20
    torch.testing.assert_close(total / count, mean)
    total.backward()
    assert objective.hidden_atom.grad is not None
    assert objective.hidden_pair.grad is not None
    for masked, empty in ((0.0, [4, 5]), (1.0, [0, 1, 2, 3])):
        batch = batches(objective.model, store, masked=masked).batch(np.arange(3), (0, 0))
        losses = objective.losses(objective.outputs(batch), batch)
        assert losses.isfinite().all()
        assert losses[empty].eq(0).all()


def test_only_chosen_targets_are_learned(objective, store):
    batch = batches(objective.model, store, masked=0.5).batch(np.arange(20), (0, 0))
    some = with_targets(objective, "torsions", "morgan")
    total, count = some(batch)
    losses = some.losses(some.outputs(batch), batch)
    torch.testing.assert_close(total / count, (losses[1] + losses[3]) / 2)
    total.backward()
    assert some.counts[-1].weight.grad[4096:8192].eq(0).all()
    assert some.counts[-1].weight.grad[8192:].ne(0).any()
    for target, heads in (("descriptors", set()), ("morgan", {"counts"}), ("atoms", {"atoms"})):
        one = with_targets(objective, target)
        trained = {name.split(".")[0] for name, p in one.named_parameters() if p.requires_grad}
        assert trained == {"model", "hidden_atom", "hidden_pair", *heads}


def test_columns_are_learned_as_a_linear_function_of_the_molecule(objective, store):
    batch = batches(objective.model, store, masked=0.0).batch(np.arange(20), (0, 0))
    columns = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    columns[4, 1] = torch.nan
    batch = batch._replace(descriptors=torch.cat([batch.descriptors, columns], dim=1))
    some = with_targets(objective, "descriptors", "columns", columns=3)
    losses = some.losses(some.outputs(batch), batch)
    vectors = some.network.encode(batch.molecules)
    found = F.linear(vectors, some.columns.weight, some.columns.bias)
    known = ~columns.isnan()
    torch.testing.assert_close(losses[6], F.mse_loss(found[known], columns[known]))
    total, count = some(batch)
    torch.testing.assert_close(total / count, (losses[0] + losses[6]) / 2)
    total.backward()
    assert some.columns.weight.grad.ne(0).all()
    assert some.counts[0].weight.grad is None  # wide layers without a loss take no time


def test_batches_follow_from_their_index_alone(objective, store):
    def drawn(start):
        some = batches(objective.model, store, 16, order_seed=1)
        some.load_state_dict({"epoch": 1, "position": start})
        return [batch.atoms.tolist() for batch in some]

    assert drawn(0)[2:] == drawn(2)
    assert len({*map(tuple, drawn(0))}) == len(drawn(0))


def test_descriptors_are_clipped_and_scaled_and_constant_ones_left_out(store):
    rows = np.arange(len(store))
    scaling, descriptors = descriptor_scaling(store, rows), store.descriptors(rows)
    scaled = scaling.scaled(descriptors)
    np.testing.assert_allclose(np.nanmean(scaled, axis=0), 0.0, atol=1e-4)
    np.testing.assert_allclose(np.nanstd(scaled, axis=0), 1.0, atol=1e-4)
    wild = descriptors.copy()
    wild[0] = 6e4
    assert scaling.scaled(wild)[0].max() <= scaled.max() + 1e-6
    for name in {*store.names} - {*scaling.names}:
        values = np.nan_to_num(descriptors[:, store.names.index(name)].astype(float))
        assert len(np.unique(values)) <= 1


def test_a_step_reads_no_value_of_a_tensor(objective, store):
    """For which the CPU would wait: ``meta`` has none."""
    there = copy.deepcopy(objective).to("meta")
    batch = batches(objective.model, store, size=8).batch(np.arange(8), (0, 0))
    moved = (part if isinstance(part, int) else part.to("meta") for part in batch)
    total, weight = there(type(batch)(*moved))
    (total / weight).backward()
    assert there.hidden_atom.grad.is_meta
