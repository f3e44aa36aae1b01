"""PyG transforms that compute the edges and edge features that molattn's layers read.

Each takes one graph, a ``Data`` whose edges are its bonds (in both directions, as PyG has them).
Use them as ``transform=`` or ``pre_transform=`` of a dataset, or call them on a ``Data``. Those
that add nodes or edges do not accept a ``Batch``.
"""

import math
from collections.abc import Callable
from numbers import Integral
from typing import Optional

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import to_scipy_sparse_matrix

from molattn.neighborhoods import pairs_within

_FAR = 1e6


@functional_transform("complete_graph")
class CompleteGraph(BaseTransform):
    r"""Add an edge for every ordered pair of nodes (functional name: ``complete_graph``).

    An edge's features are those of the bond, or zeros where there is none; then 1 for a bond and 0
    for none; then the number of bonds on the shortest path.

    Args:
        self_loops: Whether a node has an edge to itself; its distance is 0.
        max_distance: Longer distances are set to this; None = no limit.
        no_path: Distance of two nodes without a path between them: negative or above
            ``max_distance``, to differ from the length of every path.
        bond_column: Column of ``edge_attr`` that is 0 where an edge is no bond; None = all edges
            are bonds. Give 0 for complete graphs of :func:`molattn.from_smiles`.

    Shapes:
        - **input**: ``edge_index`` ``[2, E]``, each edge once; ``edge_attr`` ``[E, D]`` or ``[E]``
          or none
        - **output**: ``edge_index`` ``[2, n (n - 1)]``, or ``[2, n n]`` with self loops, sorted by
          sender, then receiver; ``edge_attr`` ``[E', D + 2]`` of the same dtype, ``int64`` if that
          is ``bool`` or has 8 bits (``D = 0`` and float if there was none)

    Raises:
        ValueError: An invalid option or graph, such as one with other edge attributes, whose edges
            would be replaced; the message states what was expected.

    Example:
        >>> bonds = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> data = CompleteGraph()(Data(edge_index=bonds, num_nodes=3))
        >>> data.edge_index[:, :2].tolist(), data.edge_attr[:2].tolist()
        ([[0, 0], [1, 2]], [[1.0, 1.0], [0.0, 2.0]])
    """

    def __init__(
        self,
        self_loops: bool = False,
        *,
        max_distance: Optional[int] = None,
        no_path: float = -1,
        bond_column: Optional[int] = None,
    ) -> None:
        if max_distance is not None:
            _check_length("max_distance", max_distance, "a whole number of at least 1, or None")
        if max_distance is not None and 0 <= no_path <= max_distance:
            raise ValueError(
                f"no_path: got {no_path}, expected a number below 0 or above "
                f"max_distance={max_distance}"
            )
        self.self_loops = self_loops
        self.max_distance = max_distance
        self.no_path = no_path
        self.bond_column = bond_column

    def forward(self, data: Data) -> Data:
        """Transform a graph."""
        num_nodes = _single(data, self)
        edge_index, features = _bonds(data, num_nodes, self.bond_column)
        if self.max_distance is None and 0 <= self.no_path < num_nodes:
            raise ValueError(
                f"no_path: got {self.no_path}, expected a number below 0 or of at least the "
                f"number of nodes, {num_nodes}"
            )
        _check_holds("no_path", self.no_path, features.dtype)
        length = path_lengths(edge_index, num_nodes)
        limit = num_nodes if self.max_distance is None else self.max_distance
        distance = length.clamp(max=limit).to(features.dtype)
        distance = distance.masked_fill(length < 0, self.no_path)
        table = features.new_zeros(num_nodes, num_nodes, features.size(1) + 2)
        table[edge_index[0], edge_index[1], :-2] = features
        table[edge_index[0], edge_index[1], -2] = 1
        table[..., -1] = distance
        _set_pairs(data, table, self.self_loops)
        return data

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(self_loops={self.self_loops}, "
            f"max_distance={self.max_distance}, no_path={self.no_path}, "
            f"bond_column={self.bond_column})"
        )


@functional_transform("topological_radius_graph")
class TopologicalRadiusGraph(BaseTransform):
    r"""Add an edge for every ordered pair of nodes at most ``radius`` bonds apart.

    For graphs that are too large for all pairs: memory is linear in the number of edges. Edge
    features are those of :class:`CompleteGraph`. Functional name: ``topological_radius_graph``.

    Args:
        radius: Largest number of bonds on the shortest path between the nodes of an edge.
        self_loops: Whether a node has an edge to itself; its distance is 0.
        bond_column: Column of ``edge_attr`` that is 0 where an edge is no bond; None = all edges
            are bonds. Give 0 for complete graphs of :func:`molattn.from_smiles`.

    Shapes:
        - **input**: ``edge_index`` ``[2, E]``, each edge once; ``edge_attr`` ``[E, D]`` or ``[E]``
          or none
        - **output**: ``edge_index`` ``[2, E']``, sorted by sender, then receiver; ``edge_attr``
          ``[E', D + 2]`` of the same dtype, ``int64`` if that is ``bool`` or has 8 bits
          (``D = 0`` and float if there was none)

    Raises:
        ValueError: An invalid option or graph, such as one with other edge attributes, whose edges
            would be replaced; the message states what was expected.

    Example:
        >>> bonds = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> data = TopologicalRadiusGraph(1)(Data(edge_index=bonds, num_nodes=3))
        >>> data.edge_index.tolist(), data.edge_attr[0].tolist()
        ([[0, 1, 1, 2], [1, 0, 2, 1]], [1.0, 1.0])
    """

    def __init__(
        self, radius: int, self_loops: bool = False, *, bond_column: Optional[int] = None
    ) -> None:
        _check_length("radius", radius, "a whole number of at least 1")
        self.radius = radius
        self.self_loops = self_loops
        self.bond_column = bond_column

    def forward(self, data: Data) -> Data:
        """Transform a graph."""
        num_nodes = _single(data, self)
        bonds, features = _bonds(data, num_nodes, self.bond_column)
        found, length = pairs_within(num_nodes, bonds.cpu().numpy(), self.radius)
        pairs = torch.from_numpy(found).long().to(bonds.device)
        distance = torch.from_numpy(length).to(features)
        table = features.new_zeros(pairs.size(1), features.size(1) + 2)
        # A loop among the bonds has features of its own, as in a complete graph.
        place = torch.searchsorted(pairs[0] * num_nodes + pairs[1], bonds[0] * num_nodes + bonds[1])
        table[place, :-2] = features
        table[place, -2] = 1
        table[:, -1] = distance
        if not self.self_loops:
            kept = pairs[0] != pairs[1]
            pairs, table = pairs[:, kept], table[kept]
        data.edge_index, data.edge_attr = pairs, table
        return data

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(radius={self.radius}, self_loops={self.self_loops}, "
            f"bond_column={self.bond_column})"
        )


@functional_transform("pair_distances")
class PairDistances(BaseTransform):
    r"""Append to each edge the Euclidean distance between its nodes (name: ``pair_distances``).

    Gradients do not flow to ``pos``: for forces, compute distances inside the model.

    Args:
        basis: What expands distances ``[E]`` into features ``[E, K]``, such as PyG's
            ``torch_geometric.nn.models.schnet.GaussianSmearing`` or
            ``torch_geometric.nn.models.dimenet.BesselBasisLayer`` (which has no value at distance
            0, that of self loops). It is used as is; it is not trained. None = the distance
            itself, ``K = 1``.

    Shapes:
        - **input**: ``pos`` ``[n, 3]``, ``edge_index`` ``[2, E]``, ``edge_attr`` ``[E, D]`` or
          ``[E]`` or none
        - **output**: ``edge_attr`` ``[E, D + K]``, floating point

    Raises:
        ValueError: A graph without positions or edges, or a basis that gives numbers that are not
            finite.

    Example:
        >>> data = Data(pos=torch.eye(3), edge_index=torch.tensor([[0], [1]]))
        >>> PairDistances()(data).edge_attr
        tensor([[1.4142]])
    """

    def __init__(self, basis: Optional[Callable[[Tensor], Tensor]] = None) -> None:
        self.basis = basis

    @torch.no_grad()
    def forward(self, data: Data) -> Data:
        """Transform a graph, or a ``Batch``."""
        edge_index, features = _edges(data, data.num_nodes or 0)
        distance = _distances(data, edge_index)
        expanded = distance.unsqueeze(-1) if self.basis is None else self.basis(distance)
        if not bool(expanded.isfinite().all()):
            bad = int((~expanded.isfinite().all(dim=-1)).nonzero()[0])
            sender, receiver = edge_index[:, bad].tolist()
            raise ValueError(
                f"basis {self.basis}: got a value that is not finite for the distance "
                f"{float(distance[bad]):.6g} of edge {sender} -> {receiver}, expected finite "
                "ones; remove the self loops or use another basis"
            )
        dtype = torch.promote_types(features.dtype, expanded.dtype)
        data.edge_attr = torch.cat([features.to(dtype), expanded.to(dtype)], dim=-1)
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}(basis={self.basis})"


@functional_transform("bonds_and_distances")
class BondsAndDistances(BaseTransform):
    r"""Make the complete graph of distance and bond that :class:`molattn.nn.MATConv` reads.

    The distance is that of ``pos`` where the graph has it, else the number of bonds on the
    shortest path. A node with itself counts as bonded, at distance 0. Functional name:
    ``bonds_and_distances``.

    Args:
        no_path: Distance of two nodes without a path, where there is no ``pos``.
        bond_column: Column of ``edge_attr`` that is 0 where an edge is no bond; None = all edges
            are bonds. Give 0 for complete graphs of :func:`molattn.from_smiles`.

    Shapes:
        - **input**: ``edge_index`` ``[2, E]``; ``pos`` ``[n, 3]`` or none
        - **output**: ``edge_index`` ``[2, n n]``, sorted by sender, then receiver; ``edge_attr``
          ``[n n, 2]``, floating point

    Raises:
        ValueError: An invalid option or graph, such as one with other edge attributes, whose edges
            would be replaced; the message states what was expected.

    Example:
        >>> bonds = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> data = BondsAndDistances()(Data(edge_index=bonds, num_nodes=3))
        >>> data.edge_attr[:3]
        tensor([[0., 1.],
                [1., 1.],
                [2., 0.]])
    """

    def __init__(self, *, no_path: float = _FAR, bond_column: Optional[int] = None) -> None:
        if no_path < 0:
            raise ValueError(f"no_path: got {no_path}, expected a distance of at least 0")
        self.no_path = no_path
        self.bond_column = bond_column

    def forward(self, data: Data) -> Data:
        """Transform a graph."""
        num_nodes = _single(data, self)
        edge_index, _ = _bonds(data, num_nodes, self.bond_column, distinct=False)
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}(no_path={self.no_path}, bond_column={self.bond_column})"


@functional_transform("add_dummy_node")
class AddDummyNode(BaseTransform):
    r"""Add a dummy node that atoms can attend to instead of atoms (Maziarka et al. 2020, MAT).

    The dummy is the last node. It has an edge to and from every node and one to itself, with the
    given distance and zeros for all other features, so no bonds. ``x`` gains a last column that is
    1 for the dummy node and 0 for atoms, as a feature or an integer code (the other columns of the
    dummy node are 0). In ``pos`` it is at least ``distance`` away from the others; in
    all other node and edge attributes it is zero. ``dummy_mask`` marks it: ``x[~dummy_mask]``
    leaves it out of a readout. Functional name: ``add_dummy_node``.

    An attribute is of the nodes or edges if it has as many rows; if both fit, the edges' names
    contain ``edge``. With one node, only ``pos``, ``z`` and names that begin with ``node`` are of
    the nodes. With at most one edge, only names that contain ``edge`` are of the edges. Labels
    (``y``, ``edge_label``) and indices stay as they are.

    Apply it to each graph before batching; ``batch`` and ``ptr`` then count each graph's dummy as
    one of its nodes. Apply it after :class:`BondsAndDistances` or :class:`CompleteGraph`, which
    would otherwise take its edges for bonds.

    Args:
        distance: Distance to all nodes, itself included.
        distance_column: Column of ``edge_attr`` that holds the distance; 0 after
            :class:`BondsAndDistances`, -1 after :class:`CompleteGraph`; None = no column does.

    Shapes:
        - **input**: ``x`` ``[n, F]``, ``edge_index`` ``[2, E]``, ``edge_attr`` ``[E, D]`` or none
        - **output**: ``x`` ``[n + 1, F + 1]``, ``edge_index`` ``[2, E + 2 n + 1]``, ``edge_attr``
          ``[E + 2 n + 1, D]``, ``dummy_mask`` ``bool [n + 1]``

    Raises:
        ValueError: An invalid graph; the message states what was expected.

    Example:
        >>> bonds = torch.tensor([[0, 1], [1, 0]])
        >>> data = BondsAndDistances()(Data(x=torch.ones(2, 1), edge_index=bonds))
        >>> AddDummyNode()(data).x
        tensor([[1., 0.],
                [1., 0.],
                [0., 1.]])
    """

    def __init__(self, distance: float = _FAR, *, distance_column: Optional[int] = 0) -> None:
        if distance < 0:
            raise ValueError(f"distance: got {distance}, expected at least 0")
        self.distance = distance
        self.distance_column = distance_column

    def forward(self, data: Data) -> Data:
        """Transform a graph."""
        n = _single(data, self)
        x, edge_index = data.x, data.edge_index
        if x is None or x.dim() != 2 or edge_index is None:
            got = None if x is None else list(x.shape)
            raise ValueError(f"data: got x {got}, expected x [n, F] and edge_index [2, E]")
        nodes = torch.arange(n + 1, device=edge_index.device)
        dummy = torch.full_like(nodes, n)
        new_edges = torch.cat(
            [torch.stack([nodes, dummy]), torch.stack([dummy[:-1], nodes[:-1]])], dim=1
        )
        features = self._edge_features(data, new_edges.size(1))
        num_edges = edge_index.size(1)
        for name, (dim, size) in _rows(data).items():
            named = name in ("pos", "z") or name.startswith("node")
            if size == num_edges and ("edge" in name or (num_edges > 1 and size != n)):
                more = new_edges.size(1)
            elif size == n and (n > 1 or named):
                more = 1
            else:
                continue
            shape = list(data[name].shape)
            shape[dim] = more
            data[name] = torch.cat([data[name], data[name].new_zeros(shape)], dim)
        if data.pos is not None:
            far = self.distance + (float(data.pos[:-1, 0].amax()) if n else 0.0)
            if not math.isnan(far):
                _check_holds("position of the dummy node", far, data.pos.dtype, "pos")
            data.pos[-1, 0] = far
        if features is not None:
            data.edge_attr = features
        data.edge_index = torch.cat([edge_index, new_edges], dim=1)
        data.x = torch.block_diag(x, x.new_ones(1, 1))
        data.dummy_mask = nodes == n
        if "num_nodes" in data:
            data.num_nodes = n + 1
        return data

    def _edge_features(self, data: Data, num_edges: int) -> Optional[Tensor]:
        """Features of the existing edges and of the dummy's."""
        features = data.edge_attr
        if features is None:
            return None
        new = features.new_zeros(num_edges, *features.shape[1:])
        if self.distance_column is not None:
            if features.dim() != 2 or not -features.size(1) <= self.distance_column < features.size(
                1
            ):
                raise ValueError(
                    f"edge_attr: got {list(features.shape)}, expected [E, D] with the distance in "
                    f"column {self.distance_column}"
                )
            _check_holds("distance", self.distance, features.dtype)
            new[:, self.distance_column] = self.distance
        return torch.cat([features, new])

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(distance={self.distance}, "
            f"distance_column={self.distance_column})"
        )


def _single(data: Data, transform: BaseTransform) -> int:
    """Check that this is one graph, and count its nodes."""
    name = type(transform).__name__
    if isinstance(data, Batch) or not isinstance(data, Data):
        raise TypeError(
            f"{name}: got {type(data).__name__}, expected one graph as a Data; "
            "transform graphs before batching them"
        )
    return data.num_nodes or 0


def _check_length(name: str, value: int, expected: str) -> None:
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name}: got {value}, expected {expected}")


def _rows(data: Data) -> dict[str, tuple[int, int]]:
    """Dimension and number of rows of each attribute that is no feature, label or index."""
    rows = {}
    for name, value in data.to_dict().items():
        if name in ("x", "edge_index", "edge_attr", "y", "edge_label"):
            continue
        if not isinstance(value, Tensor) or value.dim() == 0:
            continue
        dim = data.__cat_dim__(name, value)
        # To PyG, batch vectors are indices too.
        is_index = "batch" not in name and torch.as_tensor(data.__inc__(name, value)).any()
        if isinstance(dim, int) and not is_index:
            rows[name] = dim, value.size(dim)
    return rows


def _edges(data: Data, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Edges of a graph and their features ``[E, D]``."""
    edge_index, features = data.edge_index, data.edge_attr
    if edge_index is None or edge_index.dim() != 2 or edge_index.size(0) != 2:
        got = None if edge_index is None else list(edge_index.shape)
        raise ValueError(f"edge_index: got {got}, expected [2, E]")
    num_edges = edge_index.size(1)
    if features is None:
        features = torch.zeros(num_edges, 0, device=edge_index.device)
    features = features.view(-1, 1) if features.dim() == 1 else features
    if features.dim() != 2 or features.size(0) != num_edges:
        raise ValueError(f"edge_attr: got {list(features.shape)}, expected [{num_edges}, D]")
    if num_edges:
        low, high = (int(end) for end in edge_index.aminmax())
        if low < 0 or high >= num_nodes:
            raise ValueError(
                f"edge_index: got nodes {low} to {high}, expected 0 to {num_nodes - 1}"
            )
    return edge_index, features


def _bonds(
    data: Data, num_nodes: int, bond_column: Optional[int], *, distinct: bool = True
) -> tuple[Tensor, Tensor]:
    """Bonds of a graph whose edges will be replaced, and their features ``[E, D]``."""
    edge_index, features = _edges(data, num_nodes)
    num_edges, width = features.shape
    codes = not features.is_floating_point() and features.dtype != torch.bool
    for name, (_, size) in _rows(data).items():
        if "edge" in name and size == num_edges > 1:
            raise ValueError(
                f"{name}: got a row for each of {num_edges} edges, expected none, as the edges are "
                "replaced; remove it or put it into edge_attr"
            )
    if bond_column is not None:
        if not -width <= bond_column < width:
            raise ValueError(f"bond_column: got {bond_column}, expected a column of {width}")
        bonded = features[:, bond_column] != 0
        edge_index, features = edge_index[:, bonded], features[bonded]
    elif num_nodes >= 5 and width >= 2 and codes and _all_pairs(edge_index, num_nodes):
        raise ValueError(
            f"edge_index: got all pairs of {num_nodes} nodes as bonds, expected only bonds; give "
            "bond_column, 0 for graphs of molattn.from_smiles"
        )
    if distinct:
        pairs, counts = edge_index.unique(dim=1, return_counts=True)
        if bool((counts > 1).any()):
            sender, receiver = pairs[:, int(counts.argmax())].tolist()
            raise ValueError(
                f"edge_index: got edge {sender} -> {receiver} {int(counts.max())} times, "
                "expected each edge once"
            )
    narrow = features.dtype in (torch.bool, torch.int8, torch.uint8)
    return edge_index, features.long() if narrow else features


def _all_pairs(edge_index: Tensor, num_nodes: int) -> bool:
    """Whether all ordered pairs of different nodes are edges."""
    sender, receiver = edge_index[:, edge_index[0] != edge_index[1]]
    return (sender * num_nodes + receiver).unique().numel() == num_nodes * (num_nodes - 1)


def _check_holds(name: str, value: float, dtype: torch.dtype, holder: str = "edge_attr") -> None:
    """Check that a dtype represents a number; floating point ones round it."""
    stored = float(torch.tensor(value, dtype=torch.float64).to(dtype))
    if not math.isclose(stored, value, rel_tol=0.01 if dtype.is_floating_point else 0):
        raise ValueError(
            f"{name}: got {value}, expected a number that {holder} of {dtype} can hold"
        )


def _distances(data: Data, edge_index: Tensor) -> Tensor:
    pos = data.pos
    if pos is None or pos.dim() != 2 or not pos.is_floating_point():
        got = None if pos is None else f"{pos.dtype} {list(pos.shape)}"
        raise ValueError(f"pos: got {got}, expected floating point [n, 3]")
    return (pos[edge_index[0]] - pos[edge_index[1]]).norm(dim=-1)


def _set_pairs(data: Data, table: Tensor, self_loops: bool) -> None:
    """Replace the edges by all pairs with the features ``[n, n, D]``."""
    pairs = torch.ones(table.shape[:2], dtype=torch.bool, device=table.device)
    if not self_loops:
        pairs.fill_diagonal_(False)
    data.edge_index = pairs.nonzero().t().contiguous()
    data.edge_attr = table[pairs]


def path_lengths(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Edges on the shortest path from node to node, ``int64 [n, n]``; -1 = there is no path."""
    from scipy.sparse.csgraph import shortest_path  # half a second that models do not need

    if num_nodes == 0:
        return edge_index.new_zeros(0, 0)
    links = to_scipy_sparse_matrix(edge_index, num_nodes=num_nodes).tocsr()
    length = torch.from_numpy(shortest_path(links, "D", unweighted=True)).to(edge_index.device)
    return length.masked_fill(length.isinf(), -1).long()
