import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist
from sklearn.gaussian_process.kernels import RBF

from molattn.chem.fingerprints import SubstructureCounter
from molattn.chem.parse import parse_smiles
from molattn.model.kernel import (
    GaussianKernel,
    KernelInputs,
    MoleculeKernel,
    TanimotoKernel,
    stack_counts,
)

ALL = slice(0, 2**16)


@st.composite
def count_rows(draw, most=8):
    """Counts of some molecules at few places, so that many are in common; some have none."""
    place = st.sampled_from([0, 1, 2, 255, 256, 4095, 4096, 65535])
    count = st.integers(1, 4) | st.sampled_from([254, 255])
    row = st.dictionaries(place, count, max_size=6)
    return draw(st.lists(row, min_size=1, max_size=most))


def matrix(rows):
    pairs = [sorted(row.items()) for row in rows]
    columns = [tuple(zip(*pair, strict=True)) or ((), ()) for pair in pairs]
    return stack_counts([(np.array(p, np.uint16), np.array(c, np.uint8)) for p, c in columns])


def tanimoto(a, b):
    """The definition, in double precision."""
    minima = np.minimum(a[:, None], b).sum(axis=-1)
    maxima = np.maximum(a[:, None], b).sum(axis=-1)
    return np.where(maxima > 0, minima / np.where(maxima > 0, maxima, 1.0), 1.0)


def dense(rows):
    """Dense counts at the places that occur."""
    places = sorted({place for row in rows for place in row}) or [0]
    return np.array([[row.get(place, 0) for place in places] for row in rows], dtype=float)


@settings(max_examples=15)
@given(count_rows(), count_rows())
def test_the_tanimoto_kernel_is_minima_over_maxima(queries, known):
    both = dense([*queries, *known])
    kernel = TanimotoKernel(matrix(known), ALL)
    expected = tanimoto(both[: len(queries)], both[len(queries) :])
    np.testing.assert_allclose(kernel(matrix(queries)), expected, rtol=1e-6)
    own = kernel(matrix(known))
    np.testing.assert_array_equal(own, own.T)
    assert (np.diag(own) == 1.0).all()


@settings(max_examples=15)
@given(count_rows(), count_rows(), st.integers(0, 2**16), st.integers(0, 2**16))
def test_a_kernel_reads_only_the_positions_of_its_kind(queries, known, one, other):
    kind = slice(min(one, other), max(one, other))

    def kept(rows):
        return [{p: c for p, c in row.items() if kind.start <= p < kind.stop} for row in rows]

    expected = TanimotoKernel(matrix(kept(known)), ALL)(matrix(kept(queries)))
    np.testing.assert_array_equal(TanimotoKernel(matrix(known), kind)(matrix(queries)), expected)


def test_many_molecules_have_frequent_and_rare_substructures():
    rng = np.random.default_rng(0)
    chance = np.r_[np.full(20, 0.9), np.full(400, 0.01)]
    counts = rng.integers(1, 256, (300, 420)) * (rng.random((300, 420)) < chance)
    rows = [{int(p): int(row[p]) for p in np.flatnonzero(row)} for row in counts]
    found = TanimotoKernel(matrix(rows[:200]), ALL)(matrix(rows[200:]))
    expected = tanimoto(counts[200:].astype(float), counts[:200].astype(float))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 40, 1500])
def test_the_gaussian_kernel_is_that_of_scikit_learn(size):
    rng = np.random.default_rng(size)
    numbers = rng.normal(3.0, [1e-3, 1.0, 1e4], (size, 3))
    points = np.arange(0, size, 3)
    kernel = GaussianKernel.fit(numbers, points)
    scale = numbers.std(axis=0)
    scale[scale == 0.0] = np.inf
    scaled = ((numbers - numbers.mean(axis=0)) / scale).clip(-4, 4)
    np.testing.assert_allclose(kernel.points, scaled[points], rtol=2.0**-11, atol=1e-6)
    distances = pdist(scaled[points][:: -(-len(points) // 1000)]) ** 2
    if len(distances):
        assert kernel.length == pytest.approx(np.median(distances) / 2.0, rel=1e-4)
    rbf = RBF(np.sqrt(kernel.length / 2.0))
    np.testing.assert_allclose(kernel(numbers), rbf(scaled, kernel.points), atol=1e-5)
    assert (kernel(numbers[points]).diagonal() > 1.0 - 1e-5).all()
    rounded = kernel(numbers, rounded=True)[points]
    np.testing.assert_allclose(rounded, rbf(kernel.points), atol=1e-5)
    np.testing.assert_allclose(rounded, rounded.T, atol=1e-6)


def test_constant_and_undefined_numbers_do_not_count():
    rng = np.random.default_rng(0)
    varied = rng.normal(size=(20, 1))
    undefined = np.full((20, 1), np.nan)
    numbers = np.hstack([varied, np.full((20, 1), 7.0), undefined, np.full((20, 1), np.inf)])
    points = np.arange(20)
    expected = GaussianKernel.fit(varied, points)(varied)
    np.testing.assert_allclose(GaussianKernel.fit(numbers, points)(numbers), expected, atol=1e-6)
    # One that is undefined is the mean.
    some = varied.copy()
    some[3] = np.nan
    kernel = GaussianKernel.fit(some, points)
    mean = np.delete(varied, 3).mean()
    np.testing.assert_allclose(kernel(some)[3], kernel(np.array([[mean]]))[0], atol=1e-6)


def test_the_kernel_of_molecules_is_the_mean_times_those_of_partners_and_features():
    rng = np.random.default_rng(0)
    smiles = ["C" * n + end for n in range(1, 11) for end in ("O", "N", "c1ccccc1")]
    counter = SubstructureCounter(("morgan", "atom_pairs"), 4096)
    counts = stack_counts([counter(parse_smiles(text)) for text in smiles])
    embedding, descriptors, features = (rng.normal(size=(30, width)) for width in (4, 3, 2))
    numbers = {"embedding": embedding, "descriptors": descriptors}
    inputs = KernelInputs(30, counts, numbers, counts[rng.permutation(30)], features)
    kinds = [*counter.groups.values()]
    points = np.arange(0, 30, 2)
    found = MoleculeKernel.fit(inputs, points, kinds)(inputs)
    of_counts, of_partners = (
        [TanimotoKernel(counts[points], kind)(counts) for kind in kinds]
        for counts in (inputs.counts, inputs.partners)
    )
    numbers = [GaussianKernel.fit(x, points)(x) for x in inputs.numbers.values()]
    features = GaussianKernel.fit(inputs.features, points)(inputs.features)
    expected = np.mean([*of_counts, *numbers], axis=0) * np.mean(of_partners, axis=0) * features
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.allclose(found[points].diagonal(), 1.0, atol=1e-5)
    assert np.linalg.eigvalsh(found[points].astype(float)).min() > -1e-5
