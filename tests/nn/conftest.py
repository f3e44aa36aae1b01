"""Every registered layer, plain and with all it supports, and inputs that fit it."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from molattn.graph import CodedEdges, CompleteGraphs
from molattn.nn.registry import LAYERS, Layer

NODE_DIM, OUT, HEADS, EDGE_DIM, GLOBAL_DIM = 4, 6, 2, 3, 5
_SWITCHES = ("update_edges", "update_global", "gate")


DOUBLE = torch.float64


def assert_near(got: Any, expected: Any, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance)


@dataclass(frozen=True)
class Subject:
    """A layer to test; ``full`` = with edges, graph features, gates and every update it has."""

    name: str
    layer: Layer
    full: bool

    @property
    def edge_dim(self) -> int | None:
        return len(self.layer.edge_columns) or (EDGE_DIM if self.full else None)

    @property
    def switches(self) -> dict[str, Any]:
        if not self.full:
            return {}
        on = {name: True for name in _SWITCHES if self.layer.has(name)}
        return on | ({"global_dim": GLOBAL_DIM} if self.layer.has("global_dim") else {})

    def make(self, in_channels=NODE_DIM, heads=HEADS, dtype=torch.float64, **options) -> nn.Module:
        options = {"edge_dim": self.edge_dim, **self.switches, **options}
        return self.layer.make(in_channels, OUT, heads, **options).to(dtype).eval()

    def nodes(self, count: int, width: int = NODE_DIM, dtype=torch.float64) -> Tensor:
        return torch.randn(count, width, dtype=dtype, requires_grad=True)

    def features(self, num_edges: int, batch: Any = None, dtype=torch.float64) -> dict[str, Any]:
        """What the layer reads besides nodes and graph, for a batch of graphs or for one."""
        out: dict[str, Any] = {}
        if self.edge_dim is not None:  # at least 0, as distances are
            attr = torch.rand(num_edges, self.edge_dim, dtype=dtype)
            out["edge_attr"] = attr.requires_grad_()
        if "global_dim" in self.switches:
            of = batch[0] if isinstance(batch, tuple) else batch
            graphs = 1 if of is None else int(of.max()) + 1
            out["u"] = torch.randn(graphs, GLOBAL_DIM, dtype=dtype, requires_grad=True)
            out["batch"] = batch
        return out

    def in_rows(self, graph: CompleteGraphs, coded: bool = False) -> tuple[Tensor, dict[str, Any]]:
        """Nodes, and what else the layer reads, in rows of a layout and in single precision."""
        out: dict[str, Any] = {}
        if self.edge_dim is not None:
            out["edge_attr"] = torch.rand(graph.num_pairs, self.edge_dim)
            if coded:
                codes, table = torch.randint(0, 8, (graph.num_edges,)), torch.rand(8, self.edge_dim)
                out["edge_attr"] = CodedEdges.from_edges(graph, codes, table)
        if "global_dim" in self.switches:
            out["u"] = torch.randn(graph.num_graphs, GLOBAL_DIM)
        return self.nodes(graph.num_rows, dtype=torch.float32), out

    def run(self, conv: nn.Module, x: Any, graph: Any, given: dict, weights: bool = False) -> dict:
        """Call the layer and name what comes out."""
        out = conv(x, graph, **given, return_attention_weights=weights)
        switches = {"update_edges": "edges", "update_global": "graphs"}
        names = ["nodes", *(part for name, part in switches.items() if name in self.switches)]
        names += ["weights"] if weights else []
        parts = dict(zip(names, out if len(names) > 1 else [out], strict=True))
        if weights:
            parts["graph"], parts["weights"] = parts["weights"]
        return parts

    def run_complete(
        self,
        conv: nn.Module,
        x: Tensor,
        graph: CompleteGraphs,
        given: dict,
        weights: bool = False,
        padding: float = 0.0,
    ) -> dict:
        """Call the layer on rows, from and to the flat form of nodes and edges."""
        rows = torch.full((graph.num_rows, x.size(1)), padding, dtype=x.dtype)
        features = {k: v for k, v in given.items() if k != "batch"}
        if "edge_attr" in features:
            attr = features["edge_attr"]
            pairs = torch.full((graph.num_pairs, attr.size(1)), padding, dtype=attr.dtype)
            features["edge_attr"] = pairs.index_copy(0, graph.edge_row, attr)
        out = self.run(conv, rows.index_copy(0, graph.node_row, x), graph, features, weights)
        views = {"nodes": graph.rows_to_nodes, "graphs": lambda u: u, "graph": lambda g: g}
        return {k: views.get(k, graph.pairs_to_edges)(part) for k, part in out.items()}


def _subjects() -> list[Subject]:
    found = []
    for name, layer in LAYERS.items():
        plain, full = Subject(name, layer, False), Subject(name, layer, True)
        found.append(plain)
        if (full.edge_dim, full.switches) != (plain.edge_dim, plain.switches):
            found.append(full)
    return found


SUBJECTS = _subjects()


def _name(subject: Subject) -> str:
    return subject.name + ("-full" if subject.full else "")


@pytest.fixture(params=SUBJECTS, ids=_name)
def subject(request) -> Subject:
    """Each layer, plain and full."""
    return request.param


@pytest.fixture(params=[s for s in SUBJECTS if not s.full], ids=_name)
def plain_subject(request) -> Subject:
    """Each layer, plain."""
    return request.param


@pytest.fixture(params=[s for s in SUBJECTS if s.layer.complete_graphs], ids=_name)
def dense_subject(request) -> Subject:
    """Each layer that takes complete graphs."""
    return request.param


@pytest.fixture(
    params=[
        pytest.param(s, id=_name(s), marks=() if _name(s) == "edge_attention" else pytest.mark.slow)
        for s in SUBJECTS
        if s.layer.complete_graphs
    ]
)
def traced_subject(request) -> Subject:
    """Each layer that takes complete graphs, to be compiled: one of them unless slow tests run."""
    return request.param


@pytest.fixture
def multigraph() -> Tensor:
    """Nine nodes: duplicate edges, self loops, and two nodes (7, 8) that receive nothing."""
    edge_index = torch.randint(0, 7, (2, 20))
    edge_index[:, 1] = edge_index[:, 0]
    edge_index[:, 2] = 3
    edge_index[0, 3] = 8
    return edge_index
