"""Many SMILES at once against one at a time."""

import numpy as np
import pytest
from rdkit import Chem

from molattn.chem import Featurizer, parse_smiles
from molattn.chem.descriptors import DESCRIPTORS, DescriptorCalculator
from molattn.chem.fingerprints import SubstructureCounter, morgan_fingerprint
from molattn.chem.groups import same_cluster, same_molecule, same_scaffold
from molattn.chem.reader import Fields, MoleculeReader
from molattn.errors import SmilesError

FEATURIZER = Featurizer.default()


def test_a_reader_reads_no_further_than_asked() -> None:
    texts = iter(["C"] * 200)
    next(MoleculeReader(FEATURIZER)(texts))
    assert len(list(texts)) == 136


TEXTS = ["c1ccccc1CCO", "OCC", "CCO", "C[C@H](N)C1CC1", "OCCc1ccccc1", "C[C@@H](N)C1CC1", "CCO"]


def test_records_group_as_their_texts_do() -> None:
    fields = Fields(fingerprint=True, smiles=True, scaffold=True)
    records = MoleculeReader(FEATURIZER, fields).all(TEXTS)
    for group in (same_molecule, same_scaffold, same_cluster):
        assert group(records) == group(TEXTS)
        with pytest.raises(ValueError, match="without"):
            group(MoleculeReader(FEATURIZER).all(TEXTS))


def test_fields_do_not_depend_on_the_other_molecules() -> None:
    some, more = DescriptorCalculator(("MolWt", "qed"), 16), DescriptorCalculator(DESCRIPTORS, 32)
    counter = SubstructureCounter()
    texts = [*TEXTS, "C" * 300]  # the last is read in a child process
    fields = Fields(some, counter, more, fingerprint=True, symbols=True)
    for record, text in zip(MoleculeReader(FEATURIZER, fields).all(texts), texts, strict=True):
        mol = parse_smiles(text)
        np.testing.assert_array_equal(record.atoms, FEATURIZER(mol).atoms)
        np.testing.assert_array_equal(record.pairs, FEATURIZER(mol).pairs)
        np.testing.assert_array_equal(record.numbers, some(mol))
        np.testing.assert_array_equal(record.baseline_numbers, more(mol))
        np.testing.assert_array_equal(record.fingerprint, morgan_fingerprint(mol))
        np.testing.assert_array_equal(record.counts.positions, counter(mol).positions)
        assert len(record.symbols) == len(record.atom_numbers) == record.num_atoms
        assert record.numbers.base is None or record.numbers.base.size == record.numbers.size
        assert record.smiles is None
    (record,) = MoleculeReader(FEATURIZER, Fields(baseline_numbers=more)).all(TEXTS[:1])
    assert record.numbers is record.fingerprint is None
    assert record.baseline_numbers is not None


def described(row):
    if isinstance(row, SmilesError):
        return row.smiles, row.code, row.reason
    return row.smiles, row.pairs.tolist(), row.partner and described(row.partner)


@pytest.mark.parametrize("workers, cache_size", [(0, 0), (0, 3), (2, 3)])
def test_rows_do_not_depend_on_the_cache(workers, cache_size, monkeypatch) -> None:
    monkeypatch.setattr("molattn.chem.reader._BLOCK", 8)
    firsts = ["C" * (n % 13 + 1) for n in range(150)]
    seconds = [("O", "CCO", "C", "no", "CS(C)=O")[n % 5] for n in range(150)]
    expected = list(MoleculeReader(FEATURIZER, Fields(smiles=True))(firsts, seconds))
    reader = MoleculeReader(
        FEATURIZER, Fields(smiles=True), cache_size=cache_size, num_workers=workers
    )
    assert [*map(described, reader(firsts, seconds))] == [*map(described, expected)]


def test_equal_texts_share_one_record(monkeypatch) -> None:
    monkeypatch.setattr("molattn.chem.reader._BLOCK", 4)
    texts = ["C" * n for n in range(1, 30)]
    shuffle = np.random.default_rng(0).permutation
    firsts, seconds = shuffle(texts * 4).tolist(), shuffle(texts * 4).tolist()
    records = list(MoleculeReader(FEATURIZER)(firsts, seconds))
    found = {(text, id(r.partner)) for text, r in zip(seconds, records, strict=True)}
    found |= {(text, id(r.pairs)) for text, r in zip(firsts, records, strict=True)}
    assert len(found) == 2 * len(texts)


def test_rdkit_molecules_are_read_as_texts_are_first_and_second() -> None:
    mols = [Chem.MolFromSmiles(text) for text in TEXTS]
    reader = MoleculeReader(FEATURIZER, Fields(fingerprint=True, smiles=True))
    expected = reader.all(TEXTS, TEXTS[::-1])
    for one, other in zip(reader.all(mols, mols[::-1]), expected, strict=True):
        assert described(one) == described(other)
        np.testing.assert_array_equal(one.fingerprint, other.fingerprint)
    with pytest.raises(TypeError):
        reader.all(Chem.MolFromSmiles("OCC"))
    with pytest.raises(SmilesError) as error:
        reader.all(["C", "C"], ["C", Chem.MolFromSmiles("C", sanitize=False)])
    assert error.value.code == "partner_sanitize"
    assert "position 1" in str(error.value)
