"""A whole ``molattn train``: RDKit parses each text once and calculates each descriptor once."""

from collections import Counter

import numpy as np
import pytest
from rdkit import Chem

from molattn import MolAttn
from molattn.chem import descriptors
from molattn.cli import main
from molattn.data.table import bundled_dataset, open_table
from molattn.model.reference_inputs import ReferenceInputs

pytestmark = pytest.mark.usefixtures("without_figures")

OPTIONS = (
    "--target-columns y --epochs 1 --device cpu --init-from known --bootstrap 0 --batch-size 16"
)


@pytest.fixture
def rows():
    """Molecules with labels, one in two rows with the same text, and a text that is none."""
    table = open_table(bundled_dataset())
    texts = [row.cells[table.column("smiles", "")] for row in table][::20]
    return [(text, number / 4) for number, text in enumerate([*texts, texts[3], "nonsense"])]


@pytest.fixture
def parsed(monkeypatch):
    """Counts of the texts that RDKit's parser was given."""
    counts = Counter()
    parse = Chem.MolFromSmiles

    def counting(text, *options, **named):
        counts[text] += 1
        return parse(text, *options, **named)

    monkeypatch.setattr(Chem, "MolFromSmiles", counting)
    # A trained model has the inputs of a few molecules that are no rows.
    monkeypatch.setattr(ReferenceInputs, "of", lambda config: None)
    # The page of a run draws the few molecules with the largest errors, from their SMILES.
    monkeypatch.setattr("molattn.chem.draw.parse_accepted", parse)
    return counts


@pytest.fixture
def calculated(monkeypatch):
    """Counts of the calculations of each descriptor."""
    counts = Counter()
    for name, function in descriptors._FUNCTIONS.items():

        def counting(mol, name=name, function=function):
            counts[name] += 1
            return function(mol)

        monkeypatch.setitem(descriptors._FUNCTIONS, name, counting)
    for names, function in descriptors._TOGETHER.items():

        def counting_together(mol, names=names, function=function):
            counts.update(names)
            return function(mol)

        monkeypatch.setitem(descriptors._TOGETHER, names, counting_together)
    return counts


@pytest.mark.parametrize(
    "options, read",
    [
        ("--split scaffold --descriptors all", "all"),
        ("--no-baselines", "lipinski"),
        ("--no-baselines --descriptors none", "none"),
    ],
)
def test_each_text_is_parsed_once(rows, tmp_path, monkeypatch, request, capsys, options, read):
    monkeypatch.chdir(tmp_path)
    known, seen = MolAttn.from_pretrained("base"), [text for text, _ in rows[:40]]
    known.calibrate(["C"], np.full((1, len(known.config.tasks)), np.nan), training_smiles=seen)
    known.save_pretrained("known")
    lines = "".join(f"{text},{label}\n" for text, label in rows)
    (tmp_path / "t.csv").write_text(f"smiles,y\n{lines}")
    parsed, calculated = map(request.getfixturevalue, ("parsed", "calculated"))
    assert main(["train", "t.csv", *OPTIONS.split(), *options.split(), "--output", "run"]) == 0
    assert "molecule that the --init-from model learned from" in capsys.readouterr().out
    distinct = {text for text, _ in rows} - {"nonsense"}
    assert {text: parsed[text] for text in distinct} == dict.fromkeys(distinct, 1)
    assert calculated == dict.fromkeys(descriptors.DESCRIPTOR_SETS[read], len(distinct))
