"""PyG transforms that compute the edges and edge features that molattn's layers read.

Each takes one graph, a ``Data`` whose edges are its bonds (in both directions, as PyG has them).
Use them as ``transform=`` or ``pre_transform=`` of a dataset, or call them on a ``Data``. Those
that add nodes or edges do not accept a ``Batch``.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Optional

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Batch, Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import AddLaplacianEigenvectorPE, BaseTransform
from torch_geometric.utils import to_scipy_sparse_matrix

from molattn.record import pairs_within

_FAR = 1e6


@dataclass(eq=False)
class _BondTransform(BaseTransform):
    """A transform of one graph that reads its bonds."""

    bond_column: Optional[int] = field(default=None, kw_only=True)

    def _bonds(self, data: Data) -> tuple[int, Tensor, Tensor]:
        """Check a graph; the number of its nodes, its bonds, and their features ``[E, D]``."""
        num_nodes = _single(data, self)
        edge_index, features = _edges(data)
        narrow = features.dtype in (torch.bool, torch.int8, torch.uint8)
        if self.bond_column is not None:
            bonded = features[:, self.bond_column] != 0
            edge_index = edge_index[:, bonded]
            features = features[bonded]
        elif num_nodes >= 5 and features.size(1) >= 2 and not features.is_floating_point():
            without_loops = edge_index[:, edge_index[0] != edge_index[1]]
            if without_loops.unique(dim=1).size(1) == num_nodes * (num_nodes - 1):
                raise ValueError(
                    f"edge_index: got all pairs of {num_nodes} nodes as bonds, expected only bonds;"
                    " give bond_column, 0 for graphs of molattn.from_smiles"
                )
        return num_nodes, edge_index, features.long() if narrow else features


@functional_transform("complete_graph")
@dataclass(eq=False)
class CompleteGraph(_BondTransform):
    r"""Add an edge for every ordered pair of nodes (functional name: ``complete_graph``).

    An edge's features are those of the bond, or zeros where there is none; then 1 for a bond and 0
    for none; then the number of bonds on the shortest path.

    Args:
        self_loops: Whether a node has an edge to itself; its distance is 0.
        max_distance: Longer distances are set to this; None = no limit.
        no_path: Distance of two nodes without a path between them: negative, or above
            ``max_distance``, to differ from the length of every path.
        keep_bonds: Leave ``edge_index`` and ``edge_attr`` as they are, and put the pairs into
            ``pair_index`` and ``pair_attr``, for models that read both.
        bond_column: Column of ``edge_attr`` that is 0 where an edge is no bond; None = all edges
            are bonds. Give 0 for complete graphs of :func:`molattn.from_smiles`.

    Edges ``[2, E']`` are sorted by sender, then receiver. Features ``[E', D + 2]`` have the dtype
    of those given, ``[E, D]`` or ``[E]``; ``int64`` if that is ``bool`` or has 8 bits.

    Example:
        >>> bonds = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> data = CompleteGraph()(Data(edge_index=bonds, num_nodes=3))
        >>> data.edge_index[:, :2].tolist(), data.edge_attr[:2].tolist()
        ([[0, 0], [1, 2]], [[1.0, 1.0], [0.0, 2.0]])
    """

    self_loops: bool = False
    max_distance: Optional[int] = field(default=None, kw_only=True)
    no_path: float = field(default=-1, kw_only=True)
    keep_bonds: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        limit = self.max_distance
        no_path = self.no_path
        if limit is not None and limit < 1:
            raise ValueError(f"max_distance: got {limit}, expected at least 1, or None")
        if no_path >= 0 and (limit is None or no_path <= limit):
            raise ValueError(
                f"no_path: got {no_path}, expected a number below 0, or above max_distance"
            )

    def forward(self, data: Data) -> Data:
        """Transform a graph."""
        num_nodes, edge_index, features = self._bonds(data)
        length = path_lengths(edge_index, num_nodes)
        limit = num_nodes if self.max_distance is None else self.max_distance
        distance = length.clamp(max=limit).to(features.dtype)
        distance = distance.masked_fill(length < 0, self.no_path)
        table = features.new_zeros(num_nodes, num_nodes, features.size(1) + 2)
        table[edge_index[0], edge_index[1], :-2] = features
        table[edge_index[0], edge_index[1], -2] = 1
        table[..., -1] = distance
        _set_pairs(data, table, self.self_loops, "pair" if self.keep_bonds else "edge")
        return data


@functional_transform("topological_radius_graph")
@dataclass(eq=False)
class TopologicalRadiusGraph(_BondTransform):
    r"""Add an edge for every ordered pair of nodes at most ``radius`` bonds apart.

    For graphs that are too large for all pairs: memory is linear in the number of edges. Edge
    features are those of :class:`CompleteGraph`. Functional name: ``topological_radius_graph``.

    Args:
        radius: Largest number of bonds on the shortest path between the nodes of an edge.
        self_loops: Whether a node has an edge to itself; its distance is 0.
        bond_column: See :class:`CompleteGraph`.

    Example:
        >>> bonds = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> data = TopologicalRadiusGraph(1)(Data(edge_index=bonds, num_nodes=3))
        >>> data.edge_index.tolist(), data.edge_attr[0].tolist()
        ([[0, 1, 1, 2], [1, 0, 2, 1]], [1.0, 1.0])
    """

    radius: int
    self_loops: bool = False

    def __post_init__(self) -> None:
        if self.radius < 1:
            raise ValueError(f"radius: got {self.radius}, expected at least 1")

    def forward(self, data: Data) -> Data:
        """Transform a graph."""
        num_nodes, bonds, features = self._bonds(data)
        indices, length = pairs_within(num_nodes, bonds.cpu().numpy(), self.radius)
        pairs = torch.from_numpy(indices).long().to(bonds.device)
        distance = torch.from_numpy(length).to(features)
        table = features.new_zeros(pairs.size(1), features.size(1) + 2)
        # A loop among the bonds has features of its own, as in a complete graph.
        column = torch.searchsorted(
            pairs[0] * num_nodes + pairs[1], bonds[0] * num_nodes + bonds[1]
        )
        table[column, :-2] = features
        table[column, -2] = 1
        table[:, -1] = distance
        if not self.self_loops:
            is_pair = pairs[0] != pairs[1]
            pairs = pairs[:, is_pair]
            table = table[is_pair]
        data.edge_index = pairs
        data.edge_attr = table
        return data


@functional_transform("pair_distances")
@dataclass(eq=False)
class PairDistances(BaseTransform):
    r"""Append to each edge the Euclidean distance between its nodes (name: ``pair_distances``).

    Gradients do not flow to ``pos``: for forces, compute distances inside the model.

    Args:
        basis: What expands distances ``[E]`` into features ``[E, K]``, such as PyG's
            ``torch_geometric.nn.models.schnet.GaussianSmearing`` or
            ``torch_geometric.nn.models.dimenet.BesselBasisLayer`` (which has no value at distance
            0, that of self loops). It is not trained. None = the distance itself, ``K = 1``.

    Example:
        >>> data = Data(pos=torch.eye(3), edge_index=torch.tensor([[0], [1]]))
        >>> PairDistances()(data).edge_attr
        tensor([[1.4142]])
    """

    basis: Optional[Callable[[Tensor], Tensor]] = None

    @torch.no_grad()
    def forward(self, data: Data) -> Data:
        """Transform a graph, or a ``Batch``."""
        edge_index, features = _edges(data)
        distance = _distances(data, edge_index)
        expanded = distance.unsqueeze(-1) if self.basis is None else self.basis(distance)
        if not bool(expanded.isfinite().all()):
            raise ValueError(
                f"basis {self.basis}: got a value that is not finite, such as for self loops; "
                "remove them or use another basis"
            )
        data.edge_attr = torch.cat([features, expanded], dim=-1)
        return data


@functional_transform("bonds_and_distances")
@dataclass(eq=False)
class BondsAndDistances(_BondTransform):
    r"""Make the complete graph of distance and bond that :class:`molattn.nn.MATConv` reads.

    The distance is that of ``pos`` where the graph has it, else the number of bonds on the
    shortest path. A node with itself counts as bonded, at distance 0. Functional name:
    ``bonds_and_distances``.

    Args:
        no_path: Distance of two nodes without a path, where there is no ``pos``.
        bond_column: See :class:`CompleteGraph`.

    Example:
        >>> bonds = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> data = BondsAndDistances()(Data(edge_index=bonds, num_nodes=3))
        >>> data.edge_attr[:3]
        tensor([[0., 1.],
                [1., 1.],
                [2., 0.]])
    """

    no_path: float = field(default=_FAR, kw_only=True)

    def __post_init__(self) -> None:
        if self.no_path < 0:
            raise ValueError(f"no_path: got {self.no_path}, expected a distance of at least 0")

    def forward(self, data: Data) -> Data:
        """Transform a graph."""
        num_nodes, edge_index, _ = self._bonds(data)
        nodes = torch.arange(num_nodes, device=edge_index.device)
        if data.pos is None:
            length = path_lengths(edge_index, num_nodes)
            distance = length.float().masked_fill(length < 0, self.no_path)
        else:
            pairs = torch.cartesian_prod(nodes, nodes).view(-1, 2).t()
            distance = _distances(data, pairs).view(num_nodes, num_nodes)
        bonded = torch.zeros_like(distance)
        bonded[edge_index[0], edge_index[1]] = 1
        bonded[nodes, nodes] = 1
        _set_pairs(data, torch.stack([distance, bonded], dim=-1), self_loops=True)
        return data


@functional_transform("add_dummy_node")
@dataclass(eq=False)
class AddDummyNode(BaseTransform):
    r"""Add a dummy node that atoms can attend to instead of atoms (Maziarka et al. 2020, MAT).

    The dummy is the last node. It has an edge to and from every node and one to itself, with the
    given distance and zeros for all other features, so no bonds. ``x`` gains a last column that is
    1 for the dummy node and 0 for atoms, as a feature or an integer code (the other columns of the
    dummy node are 0). In ``pos`` it is at least ``distance`` away from the others; in
    all other node and edge attributes it is zero. ``dummy_mask`` marks it: ``x[~dummy_mask]``
    leaves it out of a readout. Functional name: ``add_dummy_node``.

    Which attributes are of the nodes or edges is decided by PyG (``Data.is_node_attr``); with one
    node, only ``pos``, ``z`` and names that begin with ``node`` are of the nodes, and only names
    that contain ``edge`` are of the edges. Labels (``y``, ``edge_label``) stay as they are.

    Apply it to each graph before batching, and after :class:`BondsAndDistances` or
    :class:`CompleteGraph`, which would otherwise take its edges for bonds.

    Args:
        distance: Distance to all nodes, itself included.
        distance_column: Column of ``edge_attr`` that holds the distance; 0 after
            :class:`BondsAndDistances`, -1 after :class:`CompleteGraph`; None = no column does.

    Example:
        >>> bonds = torch.tensor([[0, 1], [1, 0]])
        >>> data = BondsAndDistances()(Data(x=torch.ones(2, 1), edge_index=bonds))
        >>> AddDummyNode()(data).x
        tensor([[1., 0.],
                [1., 0.],
                [0., 1.]])
    """

    distance: float = _FAR
    distance_column: Optional[int] = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        if self.distance < 0:
            raise ValueError(f"distance: got {self.distance}, expected at least 0")

    def forward(self, data: Data) -> Data:
        """Transform a graph."""
        n = _single(data, self)
        x = data.x
        edge_index = data.edge_index
        if x is None or x.dim() != 2 or edge_index is None:
            shape = None if x is None else list(x.shape)
            raise ValueError(f"data: got x {shape}, expected x [n, F] and edge_index [2, E]")
        nodes = torch.arange(n + 1, device=edge_index.device)
        dummy = torch.full_like(nodes, n)
        to_dummy = torch.stack([nodes, dummy])
        from_dummy = torch.stack([dummy[:-1], nodes[:-1]])
        new_edges = torch.cat([to_dummy, from_dummy], dim=1)
        features = None if data.edge_attr is None else _pad_rows(data.edge_attr, new_edges.size(1))
        if features is not None and self.distance_column is not None:
            features[-new_edges.size(1) :, self.distance_column] = self.distance
        before = copy.copy(data)
        for name, value in before.to_dict().items():
            of_one_node = name in ("pos", "z") or name.startswith("node")
            if name in ("x", "edge_index", "edge_attr", "y") or "label" in name:
                continue
            if before.is_edge_attr(name) and "edge" in name:
                data[name] = _pad_rows(value, new_edges.size(1))
            elif before.is_node_attr(name) and (n > 1 or of_one_node):
                data[name] = _pad_rows(value, 1)
        if data.pos is not None:
            data.pos[-1, 0] = self.distance + (float(data.pos[:-1, 0].amax()) if n else 0.0)
        if features is not None:
            data.edge_attr = features
        data.edge_index = torch.cat([edge_index, new_edges], dim=1)
        data.x = torch.block_diag(x, x.new_ones(1, 1))
        data.dummy_mask = nodes == n
        if "num_nodes" in data:
            data.num_nodes = n + 1
        return data


@functional_transform("on_bonds")
@dataclass(eq=False)
class OnBonds(_BondTransform):
    r"""Apply a transform that adds encodings of nodes to the graph of bonds alone.

    The edges of the graph stay as they are. Functional name: ``on_bonds``.

    Args:
        transform: Such as PyG's ``AddRandomWalkPE`` (RWSE, Dwivedi et al. 2022).
        bond_column: See :class:`CompleteGraph`.

    Example:
        >>> from torch_geometric.transforms import AddRandomWalkPE
        >>> bonds = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> data = CompleteGraph()(Data(edge_index=bonds, num_nodes=3))
        >>> OnBonds(AddRandomWalkPE(2), bond_column=-2)(data).random_walk_pe[0].tolist()
        [0.0, 0.5]
    """

    transform: Callable[[Data], Data]

    def forward(self, data: Data) -> Data:
        """Transform a graph."""
        num_nodes, bonds, _ = self._bonds(data)
        alone = Data(x=data.x, edge_index=bonds, num_nodes=num_nodes)
        for name, value in self.transform(alone).to_dict().items():
            if name not in ("edge_index", "num_nodes"):
                data[name] = value
        return data


@functional_transform("laplacian_encoding")
@dataclass(eq=False)
class LaplacianEncoding(_BondTransform):
    r"""Add eigenvectors of the Laplacian of the bonds as ``laplacian_pe`` ``[n, k]``.

    PyG's ``AddLaplacianEigenvectorPE`` (Dwivedi and Bresson 2021), of random signs, with zeros for
    the eigenvectors that a graph of at most ``k`` nodes does not have. Functional name:
    ``laplacian_encoding``.
    """

    k: int

    def forward(self, data: Data) -> Data:
        """Transform a graph."""
        num_vectors = min(self.k, max(_single(data, self) - 1, 0))
        add = AddLaplacianEigenvectorPE(num_vectors, "laplacian_pe", is_undirected=True)
        data = OnBonds(add, bond_column=self.bond_column)(data)
        data.laplacian_pe = F.pad(data.laplacian_pe, (0, self.k - num_vectors))
        return data


@functional_transform("rrwp")
@dataclass(eq=False)
class RRWP(_BondTransform):
    r"""Append to each edge the probabilities of random walks on bonds between its nodes.

    Ma et al. 2023, "Graph Inductive Biases in Transformers without Message Passing", section 3.1:

    .. math::
        R_{ij} = [\, I, P, P^2, \ldots, P^{K-1} \,]_{ij}, \qquad P = D^{-1} A

    for the edge from the sender :math:`j` to the receiver :math:`i`, of walks from :math:`i` to
    :math:`j`, with the adjacency :math:`A` of the bonds and their number :math:`D` at each node; a
    node without bonds ends the walk. ``rrwp`` ``[n, K]`` are those of nodes, :math:`R_{ii}`. No
    edges are added: apply :class:`CompleteGraph` before it, or ``bond_column=0`` to the graphs of
    ``molattn.from_smiles``, of which ``edge_attr[:, :-K].long()`` are then the codes to embed.
    Functional name: ``rrwp``.

    Args:
        walk_length: Number of probabilities :math:`K`: those of 0 to :math:`K - 1` steps.
        bond_column: See :class:`CompleteGraph`, after which it is -2.

    Example:
        >>> bonds = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> data = CompleteGraph(self_loops=True)(Data(edge_index=bonds, num_nodes=3))
        >>> data = RRWP(3, bond_column=-2)(data)
        >>> data.edge_index[:, 1].tolist(), data.edge_attr[1].tolist()  # bond, distance, RRWP
        ([0, 1], [1.0, 1.0, 0.0, 0.5, 0.0])
        >>> data.rrwp[0].tolist()
        [1.0, 0.0, 0.5]
    """

    walk_length: int

    def forward(self, data: Data) -> Data:
        """Transform a graph."""
        num_nodes, bonds, _ = self._bonds(data)
        edge_index, features = _edges(data)
        walks = random_walks(_adjacency(bonds, num_nodes), self.walk_length)
        walks = walks.to(torch.get_default_dtype())
        data.edge_attr = torch.cat([features, walks[edge_index[1], edge_index[0]]], dim=-1)
        data.rrwp = walks.diagonal().t()
        return data


def random_walks(bonds: Tensor, length: int) -> Tensor:
    """The probabilities of :class:`RRWP`, ``[..., n, n, length]``, of ``bonds [..., n, n]``."""
    step = bonds / bonds.sum(dim=-1, keepdim=True).clamp_min(1)
    walks = [torch.eye(bonds.size(-1), dtype=step.dtype, device=step.device).expand_as(step)]
    for _ in range(1, length):
        walks.append(walks[-1] @ step)
    return torch.stack(walks, dim=-1)


@functional_transform("path_bonds")
@dataclass(eq=False)
class PathBonds(_BondTransform):
    r"""Append to each edge the features of the bonds on the shortest paths between its nodes.

    Ying et al. 2021, equation 7 (see :class:`molattn.nn.AttentionBias`): the features of the first
    ``max_hops`` bonds, one after the other, seen from the receiver, and divided by their number:
    ``max_hops`` times as many as an edge has, those that :class:`CompleteGraph` added included.
    The authors take one of the shortest paths; this is the mean over all of them, which does not
    depend on the order of nodes. Integer codes, such as those of ``molattn.from_smiles``, have no
    mean: encode them one-hot first (``torch.nn.functional.one_hot``). Functional name:
    ``path_bonds``.

    Args:
        max_hops: Number of bonds of a path that are read.
        bond_column: See :class:`CompleteGraph`, after which it is -2.
    """

    max_hops: int

    def forward(self, data: Data) -> Data:
        """Transform a graph."""
        num_nodes, bonds, of_bonds = self._bonds(data)
        if not of_bonds.is_floating_point() and bool((of_bonds > 1).any()):
            raise ValueError(
                f"edge_attr: got integers up to {int(of_bonds.max())}, expected one-hot or "
                "floating-point features: codes have no mean"
            )
        (sender, receiver), features = _edges(data)
        length = path_lengths(bonds, num_nodes)
        paths = _count_paths(bonds, length)
        hop = torch.arange(self.max_hops, device=length.device).view(-1, 1)
        means = paths.new_zeros(num_nodes, num_nodes, self.max_hops * of_bonds.size(1))
        for node in range(num_nodes):
            first = paths[node, bonds[0]] * (length[node, bonds[0]] == hop)  # [L, bonds]
            remaining = (length[node] - 1 - hop).unsqueeze(1)
            last = paths[bonds[1]] * (length[bonds[1]] == remaining)  # [L, bonds, n]
            each = torch.einsum("lb,lbn,bd->nld", first, last, of_bonds.to(paths))
            means[node] = each.flatten(1)
        means /= (paths * length.clamp(1, self.max_hops)).clamp_min(1).unsqueeze(-1)
        columns = means[receiver, sender].to(torch.get_default_dtype())
        data.edge_attr = torch.cat([features, columns], dim=-1)
        return data


def _count_paths(bonds: Tensor, length: Tensor) -> Tensor:
    """Number of shortest paths from node to node, ``float64 [n, n]``."""
    step = _adjacency(bonds, len(length))
    walks = paths = torch.eye(len(length), dtype=torch.float64, device=length.device)
    for bonds_between in range(1, int(length.max()) + 1 if length.numel() else 0):
        walks = walks @ step
        paths = torch.where(length == bonds_between, walks, paths)
    return paths


def _adjacency(bonds: Tensor, num_nodes: int) -> Tensor:
    step = torch.zeros(num_nodes, num_nodes, dtype=torch.float64, device=bonds.device)
    return step.index_put_((bonds[0], bonds[1]), step.new_ones(()))


def _pad_rows(value: Tensor, rows: int) -> Tensor:
    """Append rows of zeros."""
    return torch.cat([value, value.new_zeros(rows, *value.shape[1:])])


def _single(data: Data, transform: BaseTransform) -> int:
    """Check that this is one graph, and count its nodes."""
    if isinstance(data, Batch) or not isinstance(data, Data):
        raise TypeError(
            f"{type(transform).__name__}: got {type(data).__name__}, expected one graph as a Data; "
            "transform graphs before batching them"
        )
    return data.num_nodes or 0


def _edges(data: Data) -> tuple[Tensor, Tensor]:
    """Edges of a graph and their features ``[E, D]``."""
    edge_index = data.edge_index
    features = data.edge_attr
    if edge_index is None:
        raise ValueError("edge_index: got None, expected [2, E]")
    if features is None:
        features = torch.zeros(edge_index.size(1), 0, device=edge_index.device)
    return edge_index, features.view(-1, 1) if features.dim() == 1 else features


def _distances(data: Data, edge_index: Tensor) -> Tensor:
    if data.pos is None:
        raise ValueError("pos: got None, expected [n, 3]")
    return (data.pos[edge_index[0]] - data.pos[edge_index[1]]).norm(dim=-1)


def _set_pairs(data: Data, table: Tensor, self_loops: bool, name: str = "edge") -> None:
    """Set the edges of a name to all pairs with the features ``[n, n, D]``."""
    pairs = torch.ones(table.shape[:2], dtype=torch.bool, device=table.device)
    if not self_loops:
        pairs.fill_diagonal_(False)
    data[f"{name}_index"] = pairs.nonzero().t().contiguous()
    data[f"{name}_attr"] = table[pairs]


def path_lengths(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Edges on the shortest path from node to node, ``int64 [n, n]``; -1 = there is no path."""
    from scipy.sparse.csgraph import shortest_path  # half a second that models do not need

    if num_nodes == 0:
        return edge_index.new_zeros(0, 0)
    links = to_scipy_sparse_matrix(edge_index, num_nodes=num_nodes).tocsr()
    length = torch.from_numpy(shortest_path(links, "D", unweighted=True)).to(edge_index.device)
    return length.masked_fill(length.isinf(), -1).long()
