"""The pretraining loss, a term for each target, each 1 for an uninformed prediction; the scores."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from molattn.chem.pretraining_targets import COUNT_GROUPS, NUM_COUNTS
from molattn.config.training import Target
from molattn.graph import CodedEdges
from molattn.model.model import MolAttn
from molattn.model.network import Network
from molattn.nn.dense.linear import Linear
from molattn.pretraining.batches import MaskedBatch
from molattn.training.losses import Objective
from molattn.utils.process_group import summed

GROUPS: tuple[Target, ...] = get_args(Target)
"""The prediction targets; each has a loss of its own, and all have the same weight."""
_COUNTS_EXPANSION = 4
_MIN_ENTROPY = 0.01


class Outputs(NamedTuple):
    """Predictions for a :class:`molattn.pretraining.batches.MaskedBatch`; logits of codes."""

    descriptors: Tensor
    counts: Tensor
    atoms: tuple[Tensor, ...]
    bonds: Tensor


class PretrainingObjective(Objective):
    r"""The mean of the losses of the targets.

    .. math::
        L = \frac{1}{6}\left(L_\mathrm{descriptors} + L_\mathrm{Morgan}
        + L_\mathrm{pairs} + L_\mathrm{torsions} + L_\mathrm{atoms} + L_\mathrm{bonds}\right)

    With further columns, :math:`L_\mathrm{columns}` is added, and the divisor is 7. Descriptors and
    columns: the mean squared error of their scaled values. Columns are a linear function of the
    molecule's vector, so that this vector encodes them. Counts (Morgan environments, atom
    pairs and torsions): the mean squared error of :math:`\log(1 + \mathrm{count})`, divided by its
    mean variance. Masked atoms and bonds: the cross-entropy of their codes (for atoms, summed over
    the features) divided by the entropy of the codes in the training molecules. The model itself
    predicts the descriptors, its tasks; the other heads are discarded after pretraining. ``scales``
    are the divisors, ``count_means`` the means of :math:`\log(1 + \mathrm{count})`, predicted at
    first, and ``targets`` those whose losses count.
    """

    scales: Tensor

    def __init__(
        self,
        model: MolAttn,
        scales: Mapping[str, float],
        count_means: Tensor,
        targets: Sequence[Target] = GROUPS,
        num_columns: int = 0,
    ) -> None:
        super().__init__()
        self.model = model
        self.targets = tuple(targets)
        groups = [name for name in GROUPS if name != "columns" or num_columns]
        self._chosen = [name in targets for name in groups]
        self._has_counts = any(name in targets for name in COUNT_GROUPS)
        net = self.network
        seen = model.config.featurizer
        self.hidden_atom = nn.Parameter(torch.zeros(net.atom_width))
        pairs = net.pair_embedding
        # Not learned for a layer that reads fixed quantities: there it stands for none of them.
        self.hidden_pair = nn.Parameter(
            pairs.blank.clone(), requires_grad=pairs.weight.requires_grad
        )
        # Wide, as a fingerprint has many more independent columns than the network is wide.
        self.counts = _head(net.molecule_width, _COUNTS_EXPANSION * net.atom_width, NUM_COUNTS)
        last = cast(Linear, self.counts[-1])
        with torch.no_grad():
            last.weight.zero_()
            last.bias.copy_(count_means)
        self.atoms = _head(net.atom_width, net.atom_width, sum(seen.atom_sizes))
        self.bonds = _head(2 * net.atom_width, net.atom_width, seen.pair_sizes[0])
        self.counts.requires_grad_(self._has_counts)
        self.atoms.requires_grad_("atoms" in targets)
        self.bonds.requires_grad_("bonds" in targets)
        self._num_columns = num_columns
        self.columns = Linear(net.molecule_width, num_columns) if num_columns else None
        self.register_buffer("scales", torch.tensor([scales[name] for name in groups]))

    @property
    def network(self) -> Network:
        """The network of the model."""
        return cast(Network, self.model.nets[0])

    def forward(self, batch: MaskedBatch) -> tuple[Tensor, Tensor]:
        """Return the loss times the number of molecules, and the number of molecules."""
        losses = self.losses(self.outputs(batch), batch)
        count = summed(losses.new_full((), batch.count))
        learned_losses = [
            loss for loss, is_chosen in zip(losses, self._chosen, strict=True) if is_chosen
        ]
        return torch.stack(learned_losses).mean() * count, count

    def outputs(self, batch: MaskedBatch) -> Outputs:
        """Return the predictions for a batch."""
        net = self.network
        molecules = batch.molecules
        graph = molecules.layout
        x = net.atom_embedding(molecules.x)
        mask = self.hidden_atom.to(x.dtype).expand(len(batch.atoms), -1)
        x = x.index_copy(0, batch.atoms, mask)
        masked = batch.pairs.flatten()
        if graph.kept is not None:  # masked pairs are edges, so that a bond does not show
            graph = graph.with_edges(graph.kept.index_fill(0, masked, True))
        # Append a row for masked pairs; the code of pairs that are not edges moves up by one.
        pair_table = net.pair_embedding(molecules.pair_codes)
        table = torch.cat([pair_table, self.hidden_pair.to(pair_table.dtype).unsqueeze(0)])
        codes = molecules.edge_attr.long()
        last = len(pair_table)
        codes = torch.where(codes == last, last + 1, codes).index_fill(0, masked, last)
        kinds = F.pad(molecules.pair_codes, (0, 1))  # of masked pairs 0, which is no bond
        rows = net.encode_pairs(x, graph, CodedEdges(codes, table), CodedEdges(codes, kinds))
        nodes = graph.rows_to_nodes(rows)
        unmasked = net.readout(nodes, graph.batch, graph.num_graphs)[batch.unmasked]
        first, second = rows[batch.pair_atoms]
        sizes = self.model.config.featurizer.atom_sizes
        # Without a loss of counts, their means: what the wide layers predict before training.
        bias = cast(Linear, self.counts[-1]).bias
        counts = self.counts(unmasked) if self._has_counts else bias.expand(len(unmasked), -1)
        numbers = cast(nn.Module, net.head)(unmasked)
        if self.columns is not None:
            numbers = torch.cat([numbers, self.columns(unmasked)], dim=1)
        return Outputs(
            numbers,
            counts,
            self.atoms(rows[batch.atoms]).split(list(sizes), dim=-1),
            # Symmetric in the two atoms.
            self.bonds(torch.cat([first + second, first * second], dim=-1)),
        )

    def losses(self, outputs: Outputs, batch: MaskedBatch) -> Tensor:
        """Return the loss of each target, ``[6]``, with columns ``[7]``; 0 if the batch has none.

        Of several processes that train together, each has the errors of its part, divided by the
        number of targets of the whole batch.
        """
        is_defined = ~batch.descriptors.isnan()
        filled = torch.where(is_defined, batch.descriptors, 0.0)
        errors = (outputs.descriptors.float() - filled) ** 2 * is_defined
        squares = (outputs.counts.float() - batch.counts) ** 2
        width = is_defined.size(1) - self._num_columns
        logits = (*outputs.atoms, outputs.bonds)
        codes = (*batch.atom_codes.unbind(1), batch.bonds)
        *atoms, bonds = (
            F.cross_entropy(of_target.float(), target, reduction="sum")
            for of_target, target in zip(logits, codes, strict=True)
        )
        terms = [
            (errors[:, :width].sum(), is_defined[:, :width].sum()),
            *((squares[:, at].sum(), squares[:, at].numel()) for at in COUNT_GROUPS.values()),
            (torch.stack(atoms).sum(), len(batch.atoms)),
            (bonds, len(batch.bonds)),
        ]
        if self._num_columns:
            terms.append((errors[:, width:].sum(), is_defined[:, width:].sum()))
        sums, sizes = zip(*terms, strict=True)
        # Numbers are filled in, as a copy to a GPU would be waited for.
        numbers = [errors.new_full((), n) if isinstance(n, int) else n.float() for n in sizes]
        return torch.stack(sums) / summed(torch.stack(numbers)).clamp(min=1.0) / self.scales


def code_entropies(batch: MaskedBatch, atom_sizes: tuple[int, ...]) -> dict[str, float]:
    """Return the entropies of the codes of masked atoms and bonds, the scales of their losses."""
    atoms = [_entropy(codes) for codes in batch.atom_codes.unbind(1)]
    return {
        "atoms": max(sum(atoms), _MIN_ENTROPY * len(atom_sizes)),
        "bonds": max(_entropy(batch.bonds), _MIN_ENTROPY),
    }


def _entropy(codes: Tensor) -> float:
    probabilities = torch.bincount(codes).double() / max(1, len(codes))
    return float(-torch.xlogy(probabilities, probabilities).sum())


def _head(width: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(Linear(width, hidden), nn.SiLU(), Linear(hidden, outputs))


@torch.inference_mode()
def pretraining_scores(
    objective: PretrainingObjective,
    names: Sequence[str],
    unmasked: Iterable[MaskedBatch],
    masked: Iterable[MaskedBatch],
) -> dict[str, Any]:
    """Return R² of descriptors, columns and counts, and the accuracy for masked atoms and bonds.

    Targets that were not learned are left out.

    R² is given for each descriptor and further column of ``names``, with the mean and median over
    them. R² of a group of counts pools its positions: 1 - (squared errors) / (squared deviations
    from each position's mean). Beside each accuracy stands that of always predicting the most
    frequent value. A score that is undefined is None.
    """
    featurizer = objective.model.config.featurizer
    width = len(objective.model.config.tasks)
    numbers = _Squares()
    counts = _Squares()
    for batch in unmasked:
        outputs = objective.outputs(batch)
        numbers.add(outputs.descriptors, batch.descriptors)
        counts.add(outputs.counts, batch.counts)
    codes = []  # predicted and known ones of each masked feature, by batch
    for batch in masked:
        outputs = objective.outputs(batch)
        logits = (*outputs.atoms, outputs.bonds)
        true_codes = (*batch.atom_codes.unbind(1), batch.bonds)
        codes.append(
            [*zip((of_target.argmax(dim=-1) for of_target in logits), true_codes, strict=True)]
        )
    *atoms, bonds = (
        _accuracy(*map(torch.cat, zip(*of_batches, strict=True)))
        for of_batches in zip(*codes, strict=True)
    )
    scores = {
        "descriptors": numbers.scores(names[:width], slice(width)),
        **{name: {"r2": counts.pooled_r2(group)} for name, group in COUNT_GROUPS.items()},
        "atoms": dict(zip(featurizer.atom_names, atoms, strict=True)),
        "bonds": bonds,
    }
    if len(names) > width:
        scores["columns"] = numbers.scores(names[width:], slice(width, None))
    return {name: scores[name] for name in scores if name in objective.targets}


class _Squares:
    """Sums for R² over batches, of each column: counts, values, their squares, squared errors."""

    def __init__(self) -> None:
        self._sums = torch.zeros(4, 1, dtype=torch.float64)

    def add(self, predicted: Tensor, target: Tensor) -> None:
        """Add rows; NaN targets are left out."""
        is_defined = ~target.isnan()
        y = target.double().nan_to_num(0.0)
        errors = torch.where(is_defined, predicted.double() - y, 0.0)
        sums = [terms.sum(dim=0) for terms in (is_defined.double(), y, y**2, errors**2)]
        self._sums = self._sums + torch.stack(sums)

    def scores(self, names: Sequence[str], columns: slice) -> dict[str, Any]:
        """Return R² of each column, and their mean and median."""
        deviations, errors = (sums[columns] for sums in self._deviations_and_errors())
        varies = deviations > 1e-9 * self._sums[0, columns].clamp(min=1.0)
        r2 = torch.where(varies, 1.0 - errors / deviations, torch.nan)
        return {
            "mean_r2": _rounded(r2.nanmean()),
            "median_r2": _rounded(r2.nanquantile(0.5)),
            "r2": dict(zip(names, map(_rounded, r2), strict=True)),
        }

    def pooled_r2(self, columns: slice) -> float | None:
        """Return R² over some columns."""
        deviations, errors = (sums[columns].sum() for sums in self._deviations_and_errors())
        return _rounded(1.0 - errors / deviations)

    def _deviations_and_errors(self) -> tuple[Tensor, Tensor]:
        count, total, squares, errors = self._sums
        return squares - total**2 / count.clamp(min=1.0), errors


def _accuracy(predicted: Tensor, codes: Tensor) -> dict[str, float | None]:
    """Return the accuracy of predicted codes, and that of the most frequent code."""
    return {
        "accuracy": _rounded((predicted == codes).double().mean()),
        "commonest": _rounded(torch.bincount(codes, minlength=1).max() / len(codes)),
    }


def _rounded(value: Tensor) -> float | None:
    return round(value.item(), 6) if value.isfinite() else None
