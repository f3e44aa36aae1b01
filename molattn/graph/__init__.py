"""Complete graphs, batches of them, and transforms that make them."""

from molattn.graph.batch import ListedGraphs, MoleculeBatch, collate, collate_complete
from molattn.graph.complete import Block, CodedEdges, CompleteGraphs
from molattn.graph.transforms import (
    RRWP,
    AddDummyNode,
    BondsAndDistances,
    CompleteGraph,
    LaplacianEncoding,
    OnBonds,
    PairDistances,
    PathBonds,
    TopologicalRadiusGraph,
)

__all__ = [
    "AddDummyNode",
    "Block",
    "BondsAndDistances",
    "CodedEdges",
    "CompleteGraph",
    "CompleteGraphs",
    "LaplacianEncoding",
    "ListedGraphs",
    "MoleculeBatch",
    "OnBonds",
    "PairDistances",
    "PathBonds",
    "RRWP",
    "TopologicalRadiusGraph",
    "collate",
    "collate_complete",
]
