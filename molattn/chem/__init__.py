"""Chemistry: RDKit in, NumPy integers out."""

from molattn.chem.features import Featurizer as Featurizer
from molattn.chem.parse import parse_smiles as parse_smiles
