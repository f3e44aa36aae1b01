"""Chemistry with RDKit and NumPy, without PyTorch."""

from molattn.chem.atom_features import ATOM_COLUMNS as ATOM_COLUMNS
from molattn.chem.atom_features import ATOM_FEATURES as ATOM_FEATURES
from molattn.chem.atom_features import BOND_COLUMNS as BOND_COLUMNS
from molattn.chem.atom_features import BOND_FEATURES as BOND_FEATURES
from molattn.chem.atom_features import Column as Column
from molattn.chem.conformers import Conformer as Conformer
from molattn.chem.conformers import ConformerGenerator as ConformerGenerator
from molattn.chem.conformers import ConformerWarning as ConformerWarning
from molattn.chem.descriptors import DescriptorCalculator as DescriptorCalculator
from molattn.chem.featurizer import FEATURIZERS as FEATURIZERS
from molattn.chem.featurizer import Featurizer as Featurizer
from molattn.chem.groups import same_cluster as same_cluster
from molattn.chem.groups import same_molecule as same_molecule
from molattn.chem.groups import same_scaffold as same_scaffold
from molattn.chem.onnx_inputs import OnnxInputs as OnnxInputs
from molattn.chem.packing import PackedMolecules as PackedMolecules
from molattn.chem.parse import parse_smiles as parse_smiles
from molattn.chem.reader import Fields as Fields
from molattn.chem.reader import MoleculeReader as MoleculeReader
from molattn.chem.split import Split as Split
from molattn.chem.split import fold_split as fold_split
from molattn.chem.split import group_split as group_split
from molattn.chem.split import rolling_split as rolling_split
from molattn.chem.split import time_split as time_split
