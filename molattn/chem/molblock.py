"""Molecules of SD files to SMILES."""

from rdkit import Chem

from molattn.chem.rdkit_log import quiet

__all__ = ["smiles_of_mol_block"]


def smiles_of_mol_block(block: str) -> str | None:
    """Return the canonical SMILES of a mol block (V2000 or V3000), or None if it is none.

    A block whose molecule is not possible gives a SMILES that is refused for the same reason.
    """
    text = block.encode(errors="replace").decode()
    with quiet:
        try:
            mol = Chem.MolFromMolBlock(text)
            if mol is None:
                mol = Chem.MolFromMolBlock(text, sanitize=False)
            return None if mol is None else Chem.MolToSmiles(mol)
        except RuntimeError:  # RDKit's own checks fail on some broken blocks
            return None
