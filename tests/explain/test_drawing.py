"""Pictures of scores, read back from the SVG and the PNG."""

import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from molattn.errors import InputError
from molattn.explain import explain
from molattn.explain.drawing import outline, score_color

SVG = "{http://www.w3.org/2000/svg}"
WHITE = (1.0, 1.0, 1.0)


@pytest.fixture(scope="module")
def explanation(small_model):
    found = explain(small_model, "CC(=O)N", "integrated_gradients")
    return replace(found, atom_scores=np.array([0.5, -1.0, 0.0, 0.25]), bond_scores=np.zeros(3))


@pytest.mark.parametrize("signed", [True, False])
def test_the_scale_is_linear_and_saturates(signed):
    full = np.array(score_color(2.0, 2.0, signed=signed))
    assert score_color(1.0, 2.0, signed=signed) == pytest.approx((full + 1) / 2)
    assert score_color(9.0, 2.0, signed=signed) == tuple(full)
    assert score_color(0.0, 0.0, signed=signed) == WHITE


def test_each_atom_has_the_color_of_its_score(explanation, tmp_path):
    found = {}
    for shape in ElementTree.fromstring(explanation.draw()).iter(SVG + "ellipse"):
        fill = re.search(r"fill:#(\w{6})", shape.get("style"))[1]
        atom = int(re.fullmatch(r"atom-(\d+)", shape.get("class"))[1])
        found[atom] = [int(fill[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    assert sorted(found) == [0, 1, 3]  # what has no score has no color
    explanation.save(tmp_path / "a.PNG", width=300, height=260)
    image = Image.open(tmp_path / "a.PNG")
    assert image.size == (600, 520)
    colors = np.array([color for _, color in image.convert("RGB").getcolors(1 << 20)])
    for atom, color in found.items():
        expected = np.array(score_color(explanation.atom_scores[atom], 1.0, signed=True))
        assert color == pytest.approx(expected, abs=0.005)
        assert np.abs(colors - 255 * expected).max(axis=1).min() <= 1.5
    explanation.save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == explanation.draw()
    assert explanation._repr_html_() == explanation.draw()
    with pytest.raises(InputError):
        explanation.save(tmp_path / "a.gif")


def test_the_legend_is_in_the_unit_of_the_target(explanation):
    def texts(explanation):
        root = ElementTree.fromstring(explanation.draw())
        tags = {part.tag.removeprefix(SVG) for part in root.iter()}
        assert tags <= {*"svg title rect path ellipse text".split()}
        return [part.text for part in root.iter(SVG + "text")]

    minus = "\N{MINUS SIGN}"
    scale, caption = texts(explanation)
    assert scale == f"blue {minus}1, white 0, orange +1"
    assert caption.endswith('contribution to logS <b onclick="alert(2)">& (log mol/L)')
    others = replace(explanation, other_scores={"descriptors": -1.834, "Morgan counts": 0.5})
    assert texts(others)[1] == f"{caption}; descriptors: {minus}1.83; Morgan counts: 0.5"
    unsigned = replace(explanation, signed=False, atom_scores=np.array([0.2, 0, 0, 0]))
    assert texts(unsigned)[0] == "white 0, violet 0.2"
    assert (
        '"]]><script>µ</script>' in texts(replace(explanation, target='"]]><script>µ</script>'))[1]
    )


@pytest.mark.parametrize("smiles", ["C", "[Na+].[Cl-]", "C" * 60, "C[C@H](N)C(=O)O |$<b>;;;;;$|"])
def test_any_molecule_is_drawn(small_model, smiles, tmp_path):
    found = explain(small_model, smiles, "attention")
    ElementTree.fromstring(found.draw())
    found.save(tmp_path / "a.png")
    lines = outline(smiles)
    assert len(lines["atoms"]) == found.num_atoms
    assert all(re.fullmatch(r"[MLQCZ\d., -]+", data) for data, _ in lines["paths"])
    assert all(0 <= x <= lines["width"] and 0 <= y <= lines["height"] for x, y in lines["atoms"])


def test_a_molecule_that_is_too_large_is_replaced_by_a_sentence(small_model, tmp_path):
    found = explain(small_model, "C" * 201, "attention")
    assert outline(found.smiles) is None
    assert "Not drawn: more than 200 atoms," in found.draw()
    found.save(tmp_path / "a.png")
    image = np.asarray(Image.open(io.BytesIO((tmp_path / "a.png").read_bytes())).convert("L"))
    assert (image[300:420] < 100).sum() > 500  # letters in the middle
    assert (image[:280] == 255).all()
