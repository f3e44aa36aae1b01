"""Complete graphs, batches of them, and transforms that make them."""

from molattn.graph.batch import ListedGraphs as ListedGraphs
from molattn.graph.batch import MoleculeBatch as MoleculeBatch
from molattn.graph.batch import collate as collate
from molattn.graph.batch import collate_complete as collate_complete
from molattn.graph.complete import Block as Block
from molattn.graph.complete import CodedEdges as CodedEdges
from molattn.graph.complete import CompleteGraphs as CompleteGraphs
from molattn.graph.transforms import RRWP as RRWP
from molattn.graph.transforms import AddDummyNode as AddDummyNode
from molattn.graph.transforms import BondsAndDistances as BondsAndDistances
from molattn.graph.transforms import CompleteGraph as CompleteGraph
from molattn.graph.transforms import LaplacianEncoding as LaplacianEncoding
from molattn.graph.transforms import OnBonds as OnBonds
from molattn.graph.transforms import PairDistances as PairDistances
from molattn.graph.transforms import PathBonds as PathBonds
from molattn.graph.transforms import TopologicalRadiusGraph as TopologicalRadiusGraph
