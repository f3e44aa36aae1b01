"""Many SMILES to records, a block at a time: parsing stays warm and NumPy's calls are shared."""

from collections.abc import Iterable, Iterator
from itertools import islice

from rdkit import Chem

from molattn.chem.features import Featurizer
from molattn.chem.parse import parse_smiles
from molattn.errors import SmilesError
from molattn.record import MoleculeRecord

__all__ = ["featurize_smiles"]

_BLOCK = 64


def featurize_smiles(
    smiles: Iterable[str], featurizer: Featurizer
) -> Iterator[MoleculeRecord | SmilesError]:
    """Yield for each text, in order, its molecule or what is wrong with it.

    Args:
        smiles: The texts; read lazily, 64 at a time.
        featurizer: What to record of atoms and pairs.

    Example:
        >>> read = featurize_smiles(["CCO", "ethanol"], Featurizer.default())
        >>> [type(molecule).__name__ for molecule in read]
        ['MoleculeRecord', 'SmilesError']
    """
    texts = iter(smiles)
    while block := list(islice(texts, _BLOCK)):
        read = [_parse(text) for text in block]
        records = iter(featurizer.many([mol for mol in read if isinstance(mol, Chem.Mol)]))
        for mol in read:
            yield mol if isinstance(mol, SmilesError) else next(records)


def _parse(text: str) -> Chem.Mol | SmilesError:
    try:
        return parse_smiles(text)
    except SmilesError as error:
        return error
