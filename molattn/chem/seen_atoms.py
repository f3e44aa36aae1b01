"""Elements, charges and sizes that occur in training molecules."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from molattn.chem.featurizer import Featurizer
from molattn.record import MoleculeRecord

_COLUMNS = ("element", "charge")
_AT_ONCE = 4096


@dataclass(frozen=True)
class SeenAtoms:
    """What the molecules with a label of each of T tasks consist of.

    Values that share a code of the featurizer, those that it does not list, count as one.
    """

    codes: NDArray[np.bool_]  # codes of element and charge that occur, [T, 2, 256]
    most_atoms: NDArray[np.int64]  # of the largest molecule, without implicit hydrogens, [T]

    @classmethod
    def of(
        cls,
        records: Sequence[MoleculeRecord],
        labeled: NDArray[np.bool_],
        featurizer: Featurizer,
    ) -> "SeenAtoms":
        """Collect those of n molecules; ``labeled`` says which tasks each has labels of."""
        codes = np.zeros((labeled.shape[1], len(_COLUMNS), 256), dtype=bool)
        for start in range(0, len(records), _AT_ONCE):
            block = [records[row] for row in range(start, min(start + _AT_ONCE, len(records)))]
            occurs = _occurring(block, featurizer)
            for task, rows in enumerate(labeled[start : start + _AT_ONCE].T):
                codes[task] |= occurs[rows].any(axis=0)
        sizes = np.array([record.num_atoms for record in records])
        return cls(codes, np.where(labeled, sizes[:, None], 0).max(axis=0, initial=0))

    def joined(self, more: "SeenAtoms") -> "SeenAtoms":
        """Return what these and more molecules consist of, of the same featurizer."""
        return SeenAtoms(self.codes | more.codes, np.maximum(self.most_atoms, more.most_atoms))

    def lacks(self, records: Sequence[MoleculeRecord], featurizer: Featurizer) -> NDArray[np.bool_]:
        """Return where a molecule has an element, a charge or a size beyond a task's, ``[n, T]``.

        ``featurizer`` is that of the molecules.
        """
        unseen = (~self.codes).reshape(len(self.codes), -1).astype(np.float32)
        occurs = _occurring(records, featurizer).reshape(-1, unseen.shape[1]).astype(np.float32)
        sizes = np.array([record.num_atoms for record in records], dtype=np.int64)
        return (occurs @ unseen.T > 0) | (sizes[:, None] > self.most_atoms)

    def lacks_beside_others(
        self,
        records: Sequence[MoleculeRecord],
        labeled: NDArray[np.bool_],
        featurizer: Featurizer,
    ) -> NDArray[np.bool_]:
        """Return :meth:`lacks` of n molecules, each after the others have joined, ``[n, T]``.

        The arguments are those of :meth:`of`.
        """
        occurs = _occurring(records, featurizer).reshape(len(records), -1)
        sizes = np.array([record.num_atoms for record in records])
        lacks = np.zeros(labeled.shape, dtype=bool)
        for task, rows in enumerate(labeled.T):
            others = occurs[rows].sum(axis=0) - (occurs & rows[:, None])
            unseen = occurs & ~self.codes[task].reshape(-1) & (others == 0)
            as_large = (sizes[rows] >= sizes[:, None]).sum(axis=1) - rows
            is_largest = (sizes > self.most_atoms[task]) & (as_large == 0)
            lacks[:, task] = unseen.any(axis=1) | is_largest
        return lacks

    def reasons(self, record: MoleculeRecord, featurizer: Featurizer, task: int) -> Iterator[str]:
        """Yield why :meth:`lacks` is true of a molecule and a task, by its index."""
        unseen = _occurring([record], featurizer)[0] & ~self.codes[task]
        names: dict[str, Any] = {
            "element": Chem.GetPeriodicTable().GetElementName,
            "charge": "charge {:+d}".format,
        }
        for name, codes in zip(_COLUMNS, unseen, strict=True):
            for code in np.flatnonzero(codes).tolist():
                values = featurizer.atom_columns[featurizer.atom_names.index(name)].values
                text = names[name](values[code]) if code < len(values) else f"rare {name}"
                yield f"{text.lower()} never seen"
        if record.num_atoms > self.most_atoms[task]:
            yield f"{record.num_atoms} heavy atoms, at most {self.most_atoms[task]} seen"


def _occurring(records: Sequence[MoleculeRecord], featurizer: Featurizer) -> NDArray[np.bool_]:
    """Return which codes of element and charge occur in n molecules, ``[n, 2, 256]``."""
    occurs = np.zeros((len(records), len(_COLUMNS), 256), dtype=bool)
    if not len(records):
        return occurs
    rows = np.repeat(np.arange(len(records)), [record.num_atoms for record in records])
    atoms = np.concatenate([record.atoms for record in records])
    for index, name in enumerate(_COLUMNS):
        if name in featurizer.atom_names:
            occurs[rows, index, atoms[:, featurizer.atom_names.index(name)]] = True
    return occurs
