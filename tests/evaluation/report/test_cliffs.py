import re

import numpy as np
import pandas as pd
import pytest

import molattn

CHAINS = [head + "C" * n + end for n in range(3, 12) for head in "NC" for end in ("O", "F", "Cl")]
PAIR = ["C" * 14 + "Br", "C" * 15 + "Br"]
SAME = ["OC1CCCC1", "C1CCCC1O"]  # other labels of one molecule are no cliff
FAR = ["c1ccccc1S", "S=C=S"]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of a run whose test rows have one cliff."""
    rng = np.random.default_rng(0)
    labels = [*(len(one) + rng.normal() for one in CHAINS), 30.0, 10.0, 20.0, 5.0, 12.0, 14.0]
    return cliffs_of(labels, tmp_path_factory.mktemp("run") / "run")


def cliffs_of(labels, folder):
    """The cliffs in the report of a run with labels."""
    frame = pd.DataFrame({"smiles": [*CHAINS, *PAIR, *SAME, *FAR], "size": labels})
    frame["split"] = (["train", "validation"] * len(CHAINS))[: len(CHAINS)] + ["test"] * 6
    options = {"predictor": "gaussian_process", "descriptors": "none", "baselines": False}
    molattn.train(frame, "size", split_column="split", **options).save(folder)
    text = (folder / "report.html").read_text()
    return re.sub(r"\s+", " ", text[text.index("<h3>Cliffs") :])


def test_a_test_label_without_a_logarithm_hides_no_cliff(tmp_path):
    rng = np.random.default_rng(0)
    labels = [np.exp(0.5 * len(one) + 0.1 * rng.normal()) for one in CHAINS]
    report = cliffs_of([*labels, 8000.0, 20.0, 60.0, 50.0, 40.0, 0.0], tmp_path / "run")
    assert "<dt>measured</dt><dd>400 times</dd>" in report
    assert "inf times" not in report


def test_similar_molecules_that_are_far_apart_are_listed_once(report):
    assert report.count("<dt>seen coming</dt>") == 1
    assert "<dt>measured</dt><dd>+20</dd>" in report
    assert report.count('alt="Structure of the molecule in row') == 2
    assert '<p class="name">row 55 and row 56</p>' in report


def test_a_cliff_says_whether_it_was_seen_coming(report):
    low, high = re.search(r"<dt>predicted</dt><dd>\S+, (\S+) to (\S+)</dd>", report).groups()
    expected = "yes" if float(low) > 0 else "no" if float(high) < 20 else "within the interval"
    assert re.search(r"<dt>seen coming</dt><dd>([^<,]+)", report)[1] == expected
    assert f"Seen coming: {expected}" in report
