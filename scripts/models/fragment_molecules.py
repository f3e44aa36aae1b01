"""Cut molecules into small ones, to pretrain on beside them.

Collections of drug-like molecules hold few as small as solvents or building blocks. Each molecule
is cut, so many times over, at up to 6 of its single bonds outside rings, drawn at random; the open
valences get hydrogen. Cut are bonds between carbon, nitrogen, oxygen, halogens, silicon and
divalent sulfur without charge, so that sulfonyl, phosphoryl and nitro groups stay whole. Pieces of
3 to 16 heavy atoms are written, each once; the same input, rounds and seed give the same file::

    python -m scripts.models.fragment_molecules molecules.smi.gz --output fragments.smi.gz
    molattn pretrain molecules.smi.gz fragments.smi.gz --output runs/pretrained
"""

import argparse
import gzip
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO

from rdkit import Chem
from rich.console import Console

from molattn.chem import parse_smiles
from molattn.data.table import open_table
from molattn.errors import InputError, SmilesError, os_error_line
from molattn.utils.console import row_progress
from molattn.utils.files import atomic_write
from molattn.utils.workers import parallel_map

_END = "[#6,#7,#8,#9,#17,#35,#53,#14,$([#16v2]);+0]"
CUTTABLE = Chem.MolFromSmarts(f"{_END}-;!@{_END}")
CUTS = (2, 6)
SIZES = range(3, 17)
MOST_ATOMS = 100
CHUNK = 1000


def fragments(mol: Chem.Mol, draw: random.Random) -> Iterator[str]:
    """Yield the SMILES of the pieces of a molecule that is cut once."""
    if any(atom.GetAtomicNum() == 0 for atom in mol.GetAtoms()):
        return  # one stands for something that is not known
    bonds = [mol.GetBondBetweenAtoms(*ends).GetIdx() for ends in mol.GetSubstructMatches(CUTTABLE)]
    if not bonds:
        return
    count = min(len(bonds), draw.randint(*CUTS))
    cut = Chem.FragmentOnBonds(mol, draw.sample(bonds, count))
    for piece in Chem.GetMolFrags(cut, asMols=True):
        marks = [atom for atom in piece.GetAtoms() if atom.GetAtomicNum() == 0]
        for atom in marks:
            atom.SetAtomicNum(1)
            atom.SetIsotope(0)
        piece = Chem.RemoveAllHs(piece)
        if marks and piece.GetNumAtoms() in SIZES:
            yield Chem.MolToSmiles(piece)


def fragments_of_many(chunk: tuple[int, list[str], int, int]) -> tuple[list[str], int, int]:
    """Return the fragments of a chunk of SMILES, the number of these, and of those refused.

    Refused is what is no molecule, or has more than 100 atoms.
    """
    number, texts, rounds, seed = chunk
    draw = random.Random(f"{seed} {number}")
    found: dict[str, None] = {}
    refused = 0
    for text in texts:
        try:
            mol = parse_smiles(text, max_atoms=MOST_ATOMS)
        except SmilesError:
            refused += 1
            continue
        for _ in range(rounds):
            found.update(dict.fromkeys(fragments(mol, draw)))
    return list(found), len(texts), refused


def smiles(files: Iterable[str], column: str) -> Iterator[str]:
    """Yield the SMILES of tables; a row with a fault has none, which is refused."""
    for table in map(open_table, files):
        place = table.column(column, "--smiles-column")
        yield from (row.cells[place] if not row.code else "" for row in table)


def write(given: argparse.Namespace, output: IO[bytes]) -> tuple[int, int, int]:
    """Write the fragments of tables; return their number, of texts read, and of those refused."""
    texts = smiles(given.files, given.smiles_column)
    chunks = (
        (number, chunk, given.rounds, given.seed)
        for number, chunk in enumerate(iter(lambda: list(islice(texts, CHUNK)), []))
    )
    seen: set[str] = set()
    count = refused = 0
    with (
        row_progress(Console(stderr=True), "cutting molecules") as advance,
        # without the time, so that the same molecules are the same file
        gzip.GzipFile(filename="", mode="wb", fileobj=output, mtime=0) as out,
    ):
        for found, read, faulty in parallel_map(fragments_of_many, chunks, given.num_workers):
            count, refused = count + read, refused + faulty
            new = [text for text in found if text not in seen]
            seen.update(new)
            out.write("".join(f"{text}\n" for text in new).encode())
            advance(read)
    return len(seen), count, refused


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="INPUT", help="tables with molecules")
    parser.add_argument("--output", type=Path, required=True, help="file to write, .smi.gz")
    parser.add_argument("--smiles-column", default="smiles", help="default: smiles")
    parser.add_argument("--rounds", type=int, default=3, help="cuttings of each; default: 3")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument(
        "--num-workers", type=int, default=0, help="processes that cut; 0 = this one (default)"
    )
    given = parser.parse_args(arguments)
    for option, least in (("rounds", 1), ("num_workers", 0)):
        if (got := getattr(given, option)) < least:
            name = option.replace("_", "-")
            parser.error(f"--{name}: got {got}, expected a whole number of at least {least}")
    try:
        with atomic_write(given.output) as output:
            found, count, refused = write(given, output)
            if found == 0:
                files = ", ".join(given.files)
                raise InputError(f"{files}: no fragment of {count} texts ({refused} refused)")
    except InputError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {os_error_line(error)}")
    print(f"{found} fragments of {count} texts ({refused} refused); written to {given.output}")


if __name__ == "__main__":
    main()
