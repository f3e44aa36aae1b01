"""Batches of molecules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional, Self, Union

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Batch, Data

from molattn.graph.complete import CompleteGraphs, OnDevice
from molattn.record import NO_EDGE, MoleculeRecord

ROW_MULTIPLE = 128
"""Linear maps on a CPU have a multiple of so many rows (:func:`molattn.nn.dense.linear.linear`).

oneDNN compiles code for each shape, and torch caches that of the last 1,024, megabytes each; the
number of rows differs from batch to batch. Batches have such a number, so that nothing is copied.
"""


@dataclass(frozen=True)
class ListedGraphs(OnDevice):
    """Graphs whose edges are listed, as everywhere in PyG, in memory linear in their number.

    Args:
        edge_index: Edges, ``int64 [2, E]``.
        batch: Graph of each node, ascending, ``int64 [N]``.
        sizes: Number of nodes of each graph.
    """

    edge_index: Tensor
    batch: Tensor
    sizes: tuple[int, ...]

    @property
    def num_graphs(self) -> int:
        """Number of graphs."""
        return len(self.sizes)

    def _map(self, move: Callable[[Any], Any]) -> Self:
        return replace(self, edge_index=move(self.edge_index), batch=move(self.batch))


@dataclass(frozen=True)
class BatchSites(OnDevice):
    """The atoms and bonds of the inputs of a batch, molecule after molecule; -1 = not in the graph.

    Args:
        atoms: The node of each atom, ``int64 [A]``.
        bonds: Both nodes of each bond, ``int64 [2, B]``.
        charge: Charge of each molecule, ``int64 [num_graphs]``.
    """

    atoms: Tensor
    bonds: Tensor
    charge: Tensor

    def _map(self, move: Callable[[Any], Any]) -> Self:
        return replace(
            self, atoms=move(self.atoms), bonds=move(self.bonds), charge=move(self.charge)
        )


@dataclass(frozen=True)
class MoleculeBatch(OnDevice):
    """Molecules as complete graphs, in rows (see :class:`CompleteGraphs`), or as lists of edges.

    With :class:`ListedGraphs` rows are atoms, and pairs are edges.

    Args:
        x: Codes of each atom, ``uint8 [num_rows, A]``, or floating-point coefficients of all codes
            ``[num_rows, S]`` (see :class:`molattn.nn.CodeEmbedding`); padding is zero.
        edge_index: The layout, or the edges.
        edge_attr: For each pair its row of ``pair_codes``, ``uint8 [num_pairs]``; ``K`` where the
            pair is no edge. Or floating-point coefficients of all component codes
            ``[num_pairs, T]``.
        pair_codes: Joint codes of pairs that occur in the batch, ascending, ``uint8 [K]``.
        numbers: Extra features of each molecule, ``[num_graphs, F]``; None = no extra features.
        partners: The distinct second molecules; None = no second molecules.
        partner_index: For each molecule the index of its second molecule, ``int64 [num_graphs]``.
        sites: The atoms and bonds of the inputs, of a model that predicts them.
    """

    x: Tensor
    edge_index: Union[CompleteGraphs, ListedGraphs]
    edge_attr: Tensor
    pair_codes: Tensor
    numbers: Optional[Tensor] = None
    partners: Optional["MoleculeBatch"] = None
    partner_index: Optional[Tensor] = None
    sites: Optional[BatchSites] = None

    @property
    def num_graphs(self) -> int:
        """Number of molecules."""
        return self.edge_index.num_graphs

    @property
    def layout(self) -> CompleteGraphs:
        """The layout of complete graphs."""
        if isinstance(self.edge_index, ListedGraphs):
            raise ValueError("edge_index: got ListedGraphs, expected CompleteGraphs")
        return self.edge_index

    def _map(self, move: Callable[[Any], Any]) -> Self:
        tensors = {name: move(tensor) for name, tensor in vars(self).items() if tensor is not None}
        return replace(self, **tensors)


def collate(
    records: Sequence[MoleculeRecord],
    *,
    self_loops: bool = True,
    device: "torch.device | str" = "cpu",
) -> MoleculeBatch:
    """Collate molecules into a batch.

    Args:
        records: At least one molecule, all of the same featurizer. A second molecule that is the
            same object in several records is stored once. With ``edge_index`` in one of them, the
            batch has :class:`ListedGraphs`.
        self_loops: Whether an atom is a neighbor of itself.
        device: Where the batch will be used, see :class:`CompleteGraphs`; it is made on the CPU.
    """
    if not records:
        raise ValueError("records: got none, expected at least one molecule")
    if any(record.edge_index is not None for record in records):
        x, graphs, pairs = _listed(records, self_loops)
    else:
        x, graphs, pairs = _padded(records, self_loops, device)
    counts = np.bincount(pairs, minlength=NO_EDGE + 1)[:NO_EDGE]
    pair_codes = np.flatnonzero(counts).astype(np.uint8)
    index = np.full(NO_EDGE + 1, len(pair_codes), dtype=np.uint8)
    index[pair_codes] = np.arange(len(pair_codes))
    codes = torch.from_numpy(index[pairs])
    if isinstance(graphs, CompleteGraphs) and int(counts.sum()) < graphs.num_edges:
        graphs = graphs.with_edges(codes < len(pair_codes))
    numbers = _of_all(records, "numbers")
    partners = partner_index = None
    if seconds := _of_all(records, "partner"):
        distinct = {id(second): second for second in seconds}
        order = {key: number for number, key in enumerate(distinct)}
        partners = collate(list(distinct.values()), self_loops=self_loops, device=device)
        partner_index = torch.tensor([order[id(second)] for second in seconds])
    return MoleculeBatch(
        torch.from_numpy(x),
        graphs,
        codes,
        torch.from_numpy(pair_codes),
        torch.from_numpy(np.stack(numbers)) if numbers else None,
        partners,
        partner_index,
        _batch_sites(records),
    )


def collate_complete(graphs: Sequence[Data]) -> Batch:
    """Collate complete graphs into a PyG batch with the layout that molattn's layers take.

    Edges are all pairs of nodes, as ``molattn.from_smiles`` makes them. In the batch, ``layout``
    and ``pair_attr`` are what :meth:`CompleteGraphs.from_batch` returns. PyG's ``DataLoader``
    ignores a ``collate_fn``: use that of torch.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> from molattn import from_smiles
        >>> graphs = [from_smiles(smiles) for smiles in ("CCO", "c1ccccc1")]
        >>> (batch,) = DataLoader(graphs, batch_size=2, collate_fn=collate_complete)
        >>> batch.layout, batch.pair_attr.table.shape
        (CompleteGraphs(graphs=2, nodes=9, self_loops=False, blocks=[2x6]), torch.Size([4, 5]))
    """
    batch: Any = Batch.from_data_list(list(graphs))
    batch.layout, batch.pair_attr = CompleteGraphs.from_batch(batch)
    return batch


def _padded(
    records: Sequence[MoleculeRecord], self_loops: bool, device: "torch.device | str"
) -> tuple[NDArray[np.uint8], CompleteGraphs, NDArray[np.uint8]]:
    """Atoms and pairs in the rows of complete graphs."""
    sizes = [record.num_atoms for record in records]
    multiple = ROW_MULTIPLE if torch.device(device).type == "cpu" else 1
    graphs = CompleteGraphs(sizes, self_loops=self_loops, device=device, row_multiple=multiple)
    x = np.zeros((graphs.num_rows, records[0].atoms.shape[1]), dtype=np.uint8)
    pairs = np.full(graphs.num_pairs, NO_EDGE, dtype=np.uint8)
    for record, start in zip(records, graphs.graph_starts(), strict=True):
        n = record.num_atoms
        x[start.row : start.row + n] = record.atoms
        block = pairs[start.pair : start.pair + start.padded**2].reshape(start.padded, start.padded)
        block[:n, :n] = record.pairs.T  # senders along the last axis
        if not self_loops:
            np.fill_diagonal(block, NO_EDGE)
    return x, graphs, pairs


def _listed(
    records: Sequence[MoleculeRecord], self_loops: bool
) -> tuple[NDArray[np.uint8], ListedGraphs, NDArray[np.uint8]]:
    """Atoms and listed pairs."""
    sizes = [record.num_atoms for record in records]
    starts = np.cumsum([0, *sizes[:-1]])
    edges = []
    codes = []
    for record, start in zip(records, starts, strict=True):
        if record.edge_index is None:
            raise ValueError("records: got edge_index in some molecules, expected in all or none")
        edges.append(record.edge_index.astype(np.int64) + start)
        codes.append(record.pairs)
    edge_index = np.concatenate(edges, axis=1)
    pairs = np.concatenate(codes)
    if not self_loops:
        is_pair = edge_index[0] != edge_index[1]
        edge_index = edge_index[:, is_pair]
        pairs = pairs[is_pair]
    batch = np.repeat(np.arange(len(sizes)), sizes)
    graphs = ListedGraphs(torch.from_numpy(edge_index), torch.from_numpy(batch), tuple(sizes))
    return np.concatenate([record.atoms for record in records]), graphs, pairs


def _batch_sites(records: Sequence[MoleculeRecord]) -> Optional[BatchSites]:
    """Number the atoms and bonds of the inputs by the nodes of the batch."""
    if not (sites := _of_all(records, "sites")):
        return None
    starts = np.cumsum([0, *(record.num_atoms for record in records[:-1])])
    joined = (
        np.concatenate(
            [
                np.where(index < 0, -1, index + start)
                for index, start in zip(indices, starts, strict=True)
            ],
            axis=-1,
        )
        for indices in ([site.atoms for site in sites], [site.bonds for site in sites])
    )
    charge = torch.tensor([site.charge for site in sites])
    atoms, bonds = map(torch.from_numpy, joined)
    return BatchSites(atoms, bonds, charge)


def _of_all(records: Sequence[MoleculeRecord], name: str) -> list[Any]:
    """Return an attribute of all records, or an empty list if no record has it."""
    arrays = [array for record in records if (array := getattr(record, name)) is not None]
    if arrays and len(arrays) != len(records):
        raise ValueError(
            f"records: got {name} for {len(arrays)} of {len(records)} molecules, expected for all"
        )
    return arrays
