"""Complete graphs and batches of them: integers in, graphs out."""

from .batch import MoleculeBatch as MoleculeBatch
from .batch import collate as collate
from .coded import CodedEdges as CodedEdges
from .complete import Block as Block
from .complete import CompleteGraphs as CompleteGraphs
from .transforms import AddDummyNode as AddDummyNode
from .transforms import BondsAndDistances as BondsAndDistances
from .transforms import CompleteGraph as CompleteGraph
from .transforms import PairDistances as PairDistances
