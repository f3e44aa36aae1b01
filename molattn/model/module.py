"""The networks of a model: what they read of molecules, and the scaling of what they predict."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Self, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from molattn.chem.parse import Molecule
from molattn.chem.reader import Fields, MoleculeReader
from molattn.config import Freeze
from molattn.errors import InputError, SmilesError
from molattn.graph import MoleculeBatch, collate
from molattn.model.config import MolAttnConfig
from molattn.model.kernel import KernelInputs
from molattn.model.network import Network
from molattn.model.outputs import class_probabilities, mean_of_members
from molattn.model.target_transform import own_units, transformed_labels
from molattn.record import MoleculeRecord
from molattn.utils.devices import finish, to_device, to_host

Array = NDArray[np.float64]
Graphs = MoleculeBatch | Data
Records = Sequence[MoleculeRecord]

CLIP = 3.0
"""Standard deviations from the training mean to which calculated features are clipped."""

MOST_PAIRS = 2**20
"""Largest number of atom pairs in a batch: about those of a molecule of 1,000 atoms."""

_LISTED = 8  # times the memory of a pair of complete graphs is that of a listed one

T = TypeVar("T")


def batches(
    items: Iterable[T], size: int, record: Callable[[T], MoleculeRecord | None]
) -> Iterator[list[T]]:
    """Group items, in order, by number and by atom pairs of the molecule that ``record`` returns.

    A batch has at most ``size`` items and, unless it is one molecule, at most ``MOST_PAIRS`` atom
    pairs; a listed pair, of a model with ``radius``, counts eight times.
    """
    if size < 1:
        raise ValueError(f"batch_size: got {size}, expected an integer of at least 1")
    batch, pairs = list[T](), 0
    for item in items:
        molecule = record(item)
        more = _cost(molecule) + _cost(molecule and molecule.partner)
        if batch and (len(batch) >= size or pairs + more > MOST_PAIRS):
            yield batch
            batch, pairs = [], 0
        batch.append(item)
        pairs += more
    if batch:
        yield batch


def _cost(molecule: MoleculeRecord | None) -> int:
    if molecule is None:
        return 0
    return molecule.num_atoms**2 if molecule.edge_index is None else _LISTED * len(molecule.pairs)


def number_type() -> torch.dtype:
    """Return the type of features and labels before they are scaled: double precision.

    Values may be large compared with their differences. Apple's GPUs have single precision only.
    """
    return torch.float32 if torch.backends.mps.is_available() else torch.float64


def table_features(features: ArrayLike | None, rows: int, config: MolAttnConfig) -> Tensor | None:
    """Convert extra features ``[rows, len(config.features)]`` to a tensor; None stays None.

    Columns of a DataFrame are found by name.
    """
    if features is None:
        return None
    names, expected = [*config.features], (rows, len(config.features))
    if hasattr(features, "columns"):
        columns = [*features.columns]  # pyright: ignore[reportAttributeAccessIssue]
        if sorted(columns) != sorted(names):
            raise ValueError(f"features: got the columns {columns}, expected {names}")
        features = features[names]  # pyright: ignore
    given = torch.tensor(np.array(features, dtype=np.float64, order="C"), dtype=number_type())
    if given.shape != expected or not bool(given.isfinite().all()):
        raise ValueError(f"features: got {tuple(given.shape)}, expected finite numbers {expected}")
    return given


def joined_numbers(
    batch: MoleculeBatch | Data, features: Tensor | None, config: MolAttnConfig
) -> Tensor | None:
    """Join all extra features of molecules in own units, ``[num_graphs, config.num_numbers]``.

    Features from the table, ``[num_graphs, len(config.features)]``, then those calculated for the
    molecule and for the second molecule; NaN where undefined. None without any.

    Raises:
        ValueError: Features or second molecules that are missing, or not used by the model.
    """
    count = batch.num_graphs if isinstance(batch, (MoleculeBatch, Batch)) else 1
    partners = getattr(batch, "partners", None)
    parts = [features, getattr(batch, "numbers", None)]
    if partners is not None and partners.numbers is not None:
        parts.append(partners.numbers[batch.partner_index])
    found = [part for part in parts if part is not None]
    width = sum(part.size(-1) for part in found)
    fits = all(len(part) == count for part in found) and width == config.num_numbers
    if not fits or (partners is not None) != config.has_partner:
        raise ValueError(
            f"features: got {width} for {count} molecules, expected {config.num_numbers} "
            f"and {'' if config.has_partner else 'no '}second molecules, as of the model's "
            f"featurize and collate and in the columns {config.features}"
        )
    return torch.cat(found, dim=-1) if found else None


def scaled_numbers(numbers: Tensor, mean: Tensor, scale: Tensor, given: int) -> Tensor:
    """Scale the output ``[n, F]`` of :func:`joined_numbers` by training means and deviations.

    All but the first ``given`` features, which come from the table, are clipped to plus and minus
    ``CLIP``, and undefined ones become 0, the mean.
    """
    scaled = (numbers - mean) / scale
    calculated = scaled[:, given:].nan_to_num(nan=0.0).clamp(-CLIP, CLIP)
    return torch.cat([scaled[:, :given], calculated], dim=-1)


class NetworkModule(nn.Module):
    """The networks of a model, in scaled units; see :class:`molattn.MolAttn`."""

    target_mean: Tensor
    target_scale: Tensor
    feature_mean: Tensor
    feature_scale: Tensor

    def __init__(
        self,
        config: MolAttnConfig,
        *,
        encoder: nn.Module | None = None,
        readout: nn.Module | None = None,
        head: nn.Module | None = None,
    ) -> None:
        super().__init__()
        given = {"encoder": encoder, "readout": readout, "head": head}
        parts = {name: part for name, part in given.items() if part is not None}
        classes = {name: type(part).__name__ for name, part in parts.items()}
        if config.custom_parts and classes != dict(config.custom_parts):
            raise InputError(
                f"custom parts: got {classes or 'none'}, expected {dict(config.custom_parts)}; "
                "pass them to MolAttn.from_pretrained or MolAttn"
            )
        self.config = replace(config, custom_parts=tuple(classes.items()))
        # Each member has weights of its own; the first has the very modules that were given.
        self.nets = nn.ModuleList(
            Network(self.config, **(copy.deepcopy(parts) if member else parts))
            for member in range(config.members)
        )
        for name, size in (("target", len(config.tasks)), ("feature", config.num_numbers)):
            self.register_buffer(f"{name}_mean", torch.zeros(size, dtype=number_type()))
            self.register_buffer(f"{name}_scale", torch.ones(size, dtype=number_type()))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Apply ``half()``, ``to(...)`` and the like; means and scales keep their precision."""
        scaling = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        for name, before in scaling.items():
            setattr(self, name, before.to(getattr(self, name).device))
        return self

    @property
    def networks(self) -> list[Network]:
        """The members."""
        return [net for net in self.nets if isinstance(net, Network)]

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def forward(self, batch: Graphs, features: Tensor | None = None) -> Tensor:
        """Predict in scaled units and logits with the networks, ``[num_graphs, num_outputs]``.

        :meth:`predict` combines this with the Gaussian process, if there is one. Of an ensemble
        these are the mean of regressions and the logits of the mean class probabilities.

        Args:
            batch: From :meth:`collate`, or a PyG ``Data`` or ``Batch`` of
                :func:`molattn.from_smiles` (made with ``self_loops`` as in the config).
            features: Extra features of each molecule ``[num_graphs, len(config.features)]``, in
                the order of the config and in their own units.
        """
        return mean_of_members(self.member_outputs(batch, features), self.config.tasks)

    def member_outputs(
        self, batch: Graphs, features: Tensor | None = None, atoms: Tensor | None = None
    ) -> Tensor:
        """Return :meth:`forward` of each member; ``atoms``: the output of its encoder, if known."""
        numbers = self.scaled_features(batch, features)
        return self.outputs_and_embedding(batch, numbers, atoms)[0]

    def scaled_features(self, batch: Graphs, features: Tensor | None) -> Tensor | None:
        """Return the scaled :func:`molattn.model.module.joined_numbers`."""
        numbers = joined_numbers(batch, features, self.config)
        if numbers is None:
            return None
        scales, given = (self.feature_mean, self.feature_scale), len(self.config.features)
        return scaled_numbers(numbers, *scales, given).to(self._dtype)

    def outputs_and_embedding(
        self, batch: Graphs, numbers: Tensor | None, atoms: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return :meth:`member_outputs` with :meth:`scaled_features`, and embeddings, joined."""
        outputs, embeddings = [], []
        for net in self.networks:
            molecules = net.encode(batch, atoms)
            outputs.append(net.decode(molecules, numbers))
            embeddings.append(net.project(molecules))
        return torch.stack(outputs), torch.cat(embeddings, dim=-1)

    def freeze(self, what: int | Freeze) -> None:
        """Exclude weights from training; see :meth:`molattn.model.network.Network.freeze`."""
        for net in self.networks:
            net.freeze(what)

    @property
    def has_frozen_encoder(self) -> bool:
        """Whether it takes one molecule, and :meth:`freeze` has frozen its encoder."""
        frozen = all(net.has_frozen_encoder for net in self.networks)
        return frozen and not self.config.has_partner

    # Scaling.

    def set_feature_scaling(self, mean: ArrayLike, scale: ArrayLike) -> None:
        """Set mean and standard deviation of extra features, ``[config.num_numbers]`` each."""
        self._set_scaling("feature", mean, scale)

    def _set_scaling(self, what: str, mean: ArrayLike, scale: ArrayLike) -> None:
        values = torch.tensor(np.stack([np.asarray(mean), np.asarray(scale)]), dtype=number_type())
        buffers = [self.get_buffer(f"{what}_{name}") for name in ("mean", "scale")]
        if values.shape[1:] != buffers[0].shape or not bool((values[1] > 0).all()):
            raise ValueError(
                f"{what} scaling: expected {buffers[0].numel()} means and positive scales"
            )
        for buffer, value in zip(buffers, values, strict=True):
            buffer.copy_(value)

    def scale(self, targets: Tensor) -> Tensor:
        """Transform and standardize labels ``[n, num_tasks]``; classes and NaN stay."""
        targets = transformed_labels(targets, self.config.target_transforms)
        return ((targets - self.target_mean) / self.target_scale).to(self._dtype)

    def to_transformed(self, outputs: Array) -> Array:
        """Convert scaled regressions ``[..., num_outputs]`` to the transformed scale."""
        sizes = [task.num_outputs for task in self.config.tasks]  # a logit has mean 0 and scale 1
        mean, scale = (x.cpu().numpy().repeat(sizes) for x in (self.target_mean, self.target_scale))
        return outputs * scale + mean

    def in_own_units(self, outputs: Array) -> Array:
        """Convert regressions on the transformed scale to own units, logits to probabilities."""
        tasks, given = self.config.tasks, torch.from_numpy(outputs)
        probabilities = class_probabilities(given, tasks)
        return own_units(probabilities, tasks, self.config.target_transforms).numpy()

    # Molecules.

    def featurize(self, smiles: Molecule, partner: Molecule | None = None) -> MoleculeRecord:
        """Featurize a molecule, and the second molecule where the model takes one."""
        partners = None if partner is None else [partner]
        record = next(self.reader(partners, numbers=True)([smiles], partners))
        if isinstance(record, SmilesError):
            raise record
        return record

    def reader(
        self,
        partners: Sequence[Molecule] | None,
        *,
        numbers: bool = False,
        fingerprint: bool = False,
    ) -> MoleculeReader:
        """Return a reader of molecules: of graphs alone, or with all that the model reads."""
        if (partners is not None) != self.config.has_partner:
            words = "needs a" if self.config.has_partner else "takes no"
            raise ValueError(f"partners: the model {words} second molecule")
        fields = self.config.input_fields(fingerprint=fingerprint) if numbers else Fields()
        return self.config.reader(fields)

    def collate(self, records: Records) -> MoleculeBatch:
        """Collate molecules into a batch, on the CPU, laid out for the model's device."""
        return collate(records, self_loops=self.config.network.self_loops, device=self.device)

    def network_outputs(
        self, records: Records, batch_size: int = 256, *, features: ArrayLike | None = None
    ) -> tuple[Array, KernelInputs]:
        """Return outputs of each network, ``[members, n, num_outputs]``, and inputs of kernels."""
        given = table_features(features, len(records), self.config)

        def compute(batch: MoleculeBatch, rows: slice) -> tuple[Tensor, Tensor]:
            extra = None if given is None else to_device(given[rows], self.device)
            numbers = self.scaled_features(batch, extra)
            outputs, embedding = self.outputs_and_embedding(batch, numbers)
            return outputs.transpose(0, 1), embedding

        sizes = (len(self.nets), len(self.config.output_names)), (self.embedding_width(),)
        outputs, embedding = self._in_batches(records, batch_size, compute, *sizes)
        table = None if given is None else given.numpy()
        inputs = KernelInputs.of_records(self.config, records, embedding.float().numpy(), table)
        return outputs.double().transpose(0, 1).numpy(), inputs

    def embedding_width(self, *, atoms: bool = False) -> int:
        """Return the width of the vectors that :meth:`embed` returns."""
        return sum(net.atom_width if atoms else net.molecule_width for net in self.networks)

    def embed_records(
        self, records: Records, batch_size: int = 256, *, atoms: bool = False
    ) -> NDArray[np.float32]:
        """Embed featurized molecules; see :meth:`embed`."""

        def compute(batch: MoleculeBatch, rows: slice) -> tuple[Tensor]:
            vectors = [
                net.encode_atoms(batch)[0] if atoms else net.project(net.encode(batch))
                for net in self.networks
            ]
            return (torch.cat(vectors, dim=-1),)

        width = (self.embedding_width(atoms=atoms),)
        return self._in_batches(records, batch_size, compute, width)[0].float().numpy()

    @torch.inference_mode()
    def _in_batches(
        self,
        records: Records,
        size: int,
        compute: Callable[[MoleculeBatch, slice], tuple[Tensor, ...]],
        *shapes: tuple[int, ...],
    ) -> list[Tensor]:
        """Compute tensors of each batch and its rows, of rows of these shapes; join them."""
        for place, record in enumerate(records):
            if not record.num_atoms or (record.partner and not record.partner.num_atoms):
                raise ValueError(f"records: molecule {place} has no atoms")
        found, start = [[torch.zeros(0, *shape, dtype=self._dtype)] for shape in shapes], 0
        with self.evaluating():
            for group in batches(records, size, lambda record: record):
                rows = slice(start, start + len(group))
                batch = to_device(self.collate(group), self.device)
                for tensors, one in zip(found, compute(batch, rows), strict=True):
                    tensors.append(to_host(one))
                start = rows.stop
            finish(self.device)
        return [torch.cat(tensors) for tensors in found]

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Be in evaluation mode inside the block; threads share a model that was before."""
        trained = [module for module in self.modules() if module.training]
        if trained:
            self.eval()
        try:
            yield
        finally:
            for module in trained:
                module.training = True
