"""Many SMILES at once against one at a time."""

import numpy as np
import pytest
from rdkit import Chem

from molattn.chem import Featurizer, featurize_smiles, parse_smiles
from molattn.chem.descriptors import DESCRIPTORS, DescriptorCalculator, calculate
from molattn.chem.fingerprints import morgan_fingerprint
from molattn.chem.groups import same_cluster, same_molecule, same_scaffold
from molattn.chem.reader import MoleculeReader
from molattn.errors import SmilesError

FEATURIZER = Featurizer.default()


@pytest.mark.parametrize("copies", [0, 1, 15, 16, 40])
def test_equals_one_at_a_time_with_errors_in_place(copies: int) -> None:
    texts = ["CCO", "not a molecule", "c1ccccc1.[Na+]", "C" * 300] * copies
    read = list(featurize_smiles(iter(texts), FEATURIZER))
    assert len(read) == len(texts)
    for text, got in zip(texts, read, strict=True):
        if text == "not a molecule":
            assert isinstance(got, SmilesError)
            assert got.smiles == text
        else:
            assert not isinstance(got, SmilesError)
            expected = FEATURIZER(parse_smiles(text))
            np.testing.assert_array_equal(got.atoms, expected.atoms)
            np.testing.assert_array_equal(got.pairs, expected.pairs)


def test_fingerprints_are_those_of_each_molecule() -> None:
    texts = ["CCO", "C(C", "c1ccccc1.[Na+]"] * 30
    read = list(MoleculeReader(FEATURIZER, fingerprints=True)(texts))
    for text, got in zip(texts, read, strict=True):
        if isinstance(got, SmilesError):
            assert text == "C(C"
            continue
        np.testing.assert_array_equal(got.fingerprint, morgan_fingerprint(parse_smiles(text)))
    assert next(featurize_smiles(texts, FEATURIZER)).fingerprint is None


def test_reads_no_further_than_asked() -> None:
    texts = iter(["C"] * 200)
    next(featurize_smiles(texts, FEATURIZER))
    assert len(list(texts)) == 136


TEXTS = ["c1ccccc1CCO", "OCC", "CCO", "C[C@H](N)C1CC1", "OCCc1ccccc1", "C[C@@H](N)C1CC1", "CCO"]


def test_records_group_as_their_texts_do() -> None:
    reader = MoleculeReader(FEATURIZER, fingerprints=True, canonical=True, scaffolds=True)
    records = reader.all(TEXTS)
    for group in (same_molecule, same_scaffold, same_cluster):
        assert group(records) == group(TEXTS)
    for group in (same_molecule, same_scaffold, same_cluster):
        with pytest.raises(ValueError, match="got one without"):
            group(MoleculeReader(FEATURIZER).all(TEXTS))


def test_numbers_for_two_readers_are_those_of_each_alone() -> None:
    some, more = DescriptorCalculator(("MolWt", "qed"), 16), DescriptorCalculator(DESCRIPTORS, 32)
    for record, text in zip(
        MoleculeReader(FEATURIZER, some, baseline=more).all(TEXTS), TEXTS, strict=True
    ):
        np.testing.assert_array_equal(record.numbers, some(parse_smiles(text)))
        np.testing.assert_array_equal(record.baseline_numbers, more(parse_smiles(text)))
    (record,) = MoleculeReader(FEATURIZER, baseline=more).all(TEXTS[:1])
    assert record.numbers is None
    assert record.baseline_numbers is not None


def test_a_distinct_text_is_read_once_as_first_or_as_second_molecule(monkeypatch) -> None:
    read = []

    def parse(text: str, **limits: int):
        read.append(text)
        return parse_smiles(text, **limits)

    monkeypatch.setattr("molattn.chem.limits.parse_smiles", parse)
    firsts = ["CCO", "C", "CCO", "no", "CC"] * 40
    seconds = ["C", "O", "CCO", "C", "no"] * 40
    rows = list(MoleculeReader(FEATURIZER, distinct=True)(firsts, seconds))
    assert sorted(read) == sorted({*firsts, *seconds})
    one_by_one = list(MoleculeReader(FEATURIZER)(firsts, seconds))
    for row, expected in zip(rows, one_by_one, strict=True):
        assert type(row) is type(expected)
        if isinstance(row, SmilesError):
            assert (row.smiles, row.code, row.reason) == (
                expected.smiles,
                expected.code,
                expected.reason,
            )
            continue
        np.testing.assert_array_equal(row.pairs, expected.pairs)
        np.testing.assert_array_equal(row.partner.pairs, expected.partner.pairs)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("distinct", [False, True])
def test_rows_are_the_same_however_little_is_remembered(workers, distinct, monkeypatch) -> None:
    monkeypatch.setattr("molattn.chem.reader._BLOCK", 8)
    monkeypatch.setattr("molattn.chem.reader._MOST_DISTINCT", 3)
    firsts = ["C" * (n % 13 + 1) for n in range(150)]
    seconds = [("O", "CCO", "C", "no", "CS(C)=O")[n % 5] for n in range(150)]
    expected = list(MoleculeReader(FEATURIZER, canonical=True)(firsts, seconds))
    options = {"canonical": True, "remember": 1, "distinct": distinct, "num_workers": workers}
    found = list(MoleculeReader(FEATURIZER, **options)(firsts, seconds))
    for row, other in zip(found, expected, strict=True):
        assert type(row) is type(other)
        if isinstance(row, SmilesError):
            assert (row.smiles, row.code) == (other.smiles, other.code)
        else:
            assert (row.smiles, row.partner.smiles) == (other.smiles, other.partner.smiles)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_equal_second_molecules_are_one_object_however_many_there_are(workers, monkeypatch) -> None:
    monkeypatch.setattr("molattn.chem.reader._BLOCK", 4)
    monkeypatch.setattr("molattn.chem.reader._MOST_DISTINCT", 3)
    texts = ["C" * n for n in range(1, 30)]
    shuffle = np.random.default_rng(0).permutation
    firsts, seconds = shuffle(texts * 4).tolist(), shuffle(texts * 4).tolist()
    reader = MoleculeReader(FEATURIZER, distinct=True, num_workers=workers)
    partners = [record.partner for record in reader(firsts, seconds)]
    found = {
        text: {id(p) for t, p in zip(seconds, partners, strict=True) if t == text} for text in texts
    }
    assert {len(objects) for objects in found.values()} == {1}


def test_rdkit_molecules_are_read_as_texts_are_first_and_second() -> None:
    mols = [Chem.MolFromSmiles(text) for text in TEXTS]
    for distinct in (False, True):
        reader = MoleculeReader(FEATURIZER, fingerprints=True, canonical=True, distinct=distinct)
        expected = reader.all(TEXTS, TEXTS[::-1])
        for one, other in zip(reader.all(mols, mols[::-1]), expected, strict=True):
            for a, b in ((one, other), (one.partner, other.partner)):
                assert a.smiles == b.smiles
                np.testing.assert_array_equal(a.pairs, b.pairs)
                np.testing.assert_array_equal(a.fingerprint, b.fingerprint)
    with pytest.raises(TypeError, match=r"got one molecule, expected a list: \['OCC'\]"):
        reader.all(Chem.MolFromSmiles("OCC"))
    with pytest.raises(SmilesError, match=r"its partner, 'C': the mol.*position 1.*partner_sanit"):
        reader.all(["C", "C"], ["C", Chem.MolFromSmiles("C", sanitize=False)])


def test_descriptors_of_molecules_read_with_a_limit_of_time_are_not_calculated_again(monkeypatch):
    slow, calculated = "C" * 300, []

    def record(mols, calculators):
        calculated.append(len(mols))
        return calculate(mols, calculators)

    monkeypatch.setattr("molattn.chem.reader.calculate", record)
    calculator = DescriptorCalculator(("MolWt", "TPSA"), morgan_counts=16)
    read = MoleculeReader(FEATURIZER, calculator).all(["CCO", slow, "CCN"])
    assert calculated == [2]
    for text, got in zip(["CCO", slow, "CCN"], read, strict=True):
        np.testing.assert_array_equal(got.numbers, calculator(parse_smiles(text)))
        assert got.numbers.base is None or got.numbers.base.size == got.numbers.size
