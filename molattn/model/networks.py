"""The networks of a model, which read molecules in batches."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch_geometric.data import Data

from molattn.chem.parse import Molecule
from molattn.chem.reader import Fields, MoleculeReader
from molattn.graph import MoleculeBatch, collate
from molattn.model.config import MolAttnConfig
from molattn.model.kernel import KernelInputs
from molattn.model.network import Network
from molattn.model.outputs import class_probabilities
from molattn.model.scaling import Scaling, table_features
from molattn.record import MoleculeRecord
from molattn.task import Level, count_outputs
from molattn.utils.devices import finish, to_device, to_host

Array = NDArray[np.float64]
Graphs = MoleculeBatch | Data
Records = Sequence[MoleculeRecord]

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
    batch = list[T]()
    pairs = 0
    for item in items:
        molecule = record(item)
        more = _cost(molecule) + _cost(molecule and molecule.partner)
        if batch and (len(batch) >= size or pairs + more > MOST_PAIRS):
            yield batch
            batch = []
            pairs = 0
        batch.append(item)
        pairs += more
    if batch:
        yield batch


def _cost(molecule: MoleculeRecord | None) -> int:
    if molecule is None:
        return 0
    return molecule.num_atoms**2 if molecule.edge_index is None else _LISTED * len(molecule.pairs)


@dataclass(frozen=True, eq=False)
class Networks:
    """The networks of a model, one for each member, with the scaling of what they read and predict.

    The weights are registered in the model, which makes this when it is needed.
    """

    config: MolAttnConfig
    nets: nn.ModuleList
    scaling: Scaling

    @property
    def members(self) -> list[Network]:
        """The network of each member."""
        return [net for net in self.nets if isinstance(net, Network)]

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.nets.parameters()).device

    @property
    def has_frozen_encoder(self) -> bool:
        """Whether the networks take one molecule, and their encoders are frozen."""
        frozen = all(net.has_frozen_encoder for net in self.members)
        return frozen and not self.config.has_partner

    # Molecules.

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

    def read(self, smiles: Any, partners: Any = None, *, fingerprint: bool = False) -> Any:
        """Read molecules, with all that the model reads; an invalid one raises SmilesError."""
        reader = self.reader(partners, numbers=True, fingerprint=fingerprint)
        return reader.all(smiles, partners)

    def collate(self, records: Records) -> MoleculeBatch:
        """Collate molecules into a batch, on the CPU, laid out for the device of the weights."""
        return collate(records, self_loops=self.config.network.self_loops, device=self.device)

    # Predictions in scaled units and logits, and embeddings.

    def member_outputs(
        self, batch: Graphs, features: Tensor | None = None, atoms: Tensor | None = None
    ) -> Tensor:
        """Predict a batch with each member, ``[members, num_graphs, num_outputs]``.

        ``features`` are those of :meth:`molattn.MolAttn.forward`; ``atoms`` is the output of the
        encoder, if known.
        """
        numbers = self.scaling.scaled_features(batch, features)
        return self.outputs_and_embedding(batch, numbers, atoms)[0]

    def outputs_and_embedding(
        self, batch: Graphs, numbers: Tensor | None, atoms: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return :meth:`member_outputs`, of scaled features, and the embeddings of all members."""
        outputs = []
        embeddings = []
        for net in self.members:
            molecules = net.encode(batch, atoms)
            outputs.append(net.decode(molecules, numbers))
            embeddings.append(net.project(molecules))
        return torch.stack(outputs), torch.cat(embeddings, dim=-1)

    @torch.inference_mode()
    def predict(
        self, records: Records, batch_size: int = 256, *, features: ArrayLike | None = None
    ) -> tuple[Array, KernelInputs]:
        """Return outputs of each member, ``[members, n, num_outputs]``, and inputs of kernels."""
        table = table_features(features, len(records), self.config)
        outputs = [self._empty(len(self.nets), len(self.config.output_names))]
        embeddings = [self._empty(self.embedding_width())]
        with self.evaluating():
            for batch, rows in self._batches(records, batch_size):
                columns = None if table is None else to_device(table[rows], self.device)
                numbers = self.scaling.scaled_features(batch, columns)
                of_members, embedding = self.outputs_and_embedding(batch, numbers)
                outputs.append(to_host(of_members.transpose(0, 1)))
                embeddings.append(to_host(embedding))
        array = None if table is None else table.numpy()
        embedding = torch.cat(embeddings).float().numpy()
        inputs = KernelInputs.of_records(self.config, records, embedding, array)
        return torch.cat(outputs).double().transpose(0, 1).numpy(), inputs

    @torch.inference_mode()
    def predict_sites(
        self, records: Records, batch_size: int = 256, *, with_vectors: bool = False
    ) -> tuple[dict[Level, Array], dict[Level, NDArray[np.float32]]]:
        """Predict atoms and bonds in own units and probabilities, the mean over members.

        Returns:
            By level ``[S, outputs]``, in the order of :class:`molattn.chem.sites.Sites`, NaN of a
            site that is not in the graph; and the vectors of all members, ``[S, width]``, empty if
            they are not asked for.
        """
        tasks = self.config.site_tasks
        outputs: dict[Level, list[Tensor]] = {
            level: [self._empty(count_outputs(tasks[level]))] for level in tasks
        }
        vectors: dict[Level, list[Tensor]] = {level: [torch.zeros(0)] for level in tasks}
        with self.evaluating():
            for batch, _ in self._batches(records, batch_size):
                for level, (values, of_sites) in self._site_values(batch).items():
                    outputs[level].append(to_host(values))
                    if with_vectors:
                        vectors[level].append(to_host(of_sites).float())
        return (
            {level: torch.cat(values).double().numpy() for level, values in outputs.items()},
            {level: torch.cat(of_sites).numpy() for level, of_sites in vectors.items()},
        )

    def _site_values(self, batch: MoleculeBatch) -> dict[Level, tuple[Tensor, Tensor]]:
        sites = batch.sites
        assert sites is not None
        probable: dict[Level, list[Tensor]] = {level: [] for level in self.config.site_tasks}
        vectors: dict[Level, list[Tensor]] = {level: [] for level in self.config.site_tasks}
        for net in self.members:
            atoms, _, edges = net.encode_graphs(batch)
            of_sites = net.site_vectors(batch, atoms, edges)
            for level, outputs in net.predict_sites(batch, of_sites).items():
                in_own_units = net.site_head(level).in_own_units(outputs).double()
                tasks = self.config.site_tasks[level]
                probable[level].append(class_probabilities(in_own_units, tasks))
                vectors[level].append(of_sites[level])
        values = {}
        for level, of_members in probable.items():
            index = sites.atoms[None] if level == "atom" else sites.bonds
            is_absent = (index < 0).any(dim=0).unsqueeze(-1)
            mean = torch.stack(of_members).mean(dim=0).masked_fill(is_absent, torch.nan)
            values[level] = mean, torch.cat(vectors[level], dim=-1)
        return values

    def embedding_width(self, *, atoms: bool = False) -> int:
        """Return the width of the vectors that :meth:`embed` returns."""
        return sum(net.atom_width if atoms else net.molecule_width for net in self.members)

    @torch.inference_mode()
    def embed(
        self, records: Records, batch_size: int = 256, *, atoms: bool = False
    ) -> NDArray[np.float32]:
        """Embed featurized molecules; see :meth:`molattn.MolAttn.embed`."""
        embeddings = [self._empty(self.embedding_width(atoms=atoms))]
        with self.evaluating():
            for batch, _ in self._batches(records, batch_size):
                vectors = [
                    net.encode_atoms(batch)[0] if atoms else net.project(net.encode(batch))
                    for net in self.members
                ]
                embeddings.append(to_host(torch.cat(vectors, dim=-1)))
        return torch.cat(embeddings).float().numpy()

    def _empty(self, *shape: int) -> Tensor:
        """Return a tensor of no rows, to which those of batches are joined."""
        return torch.zeros(0, *shape, dtype=self.scaling.dtype)

    def _batches(self, records: Records, size: int) -> Iterator[tuple[MoleculeBatch, slice]]:
        """Yield batches on the device of the networks, with their rows."""
        for index, record in enumerate(records):
            if not record.num_atoms or (record.partner and not record.partner.num_atoms):
                raise ValueError(f"records: molecule {index} has no atoms")
        start = 0
        for group in batches(records, size, lambda record: record):
            rows = slice(start, start + len(group))
            yield to_device(self.collate(group), self.device), rows
            start = rows.stop
        finish(self.device)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Be in evaluation mode inside the block; threads share a model that was before."""
        trained = [module for module in self.nets.modules() if module.training]
        if trained:
            self.nets.eval()
        try:
            yield
        finally:
            for module in trained:
                module.training = True
