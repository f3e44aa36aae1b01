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
from molattn.explain.drawing import (
    LOWER,
    NEUTRAL,
    RAISE,
    SHARE,
    Drawing,
    molecule_outline,
    score_color,
)

SVG = "{http://www.w3.org/2000/svg}"
# Machado, Oliveira and Fernandes 2009, severity 1: linear RGB as seen without one kind of cone.
BLINDNESS = {
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


@pytest.fixture(scope="module")
def explanation(small_model):
    found = explain(small_model, "CC(=O)N", "integrated_gradients")
    return replace(found, atom_scores=np.array([0.5, -1.0, 0.0, 0.25]), bond_scores=np.zeros(3))


def png_of(explanation, **size):
    caption, ends = explanation.legend_lines
    drawing = Drawing(
        explanation.smiles,
        explanation.atom_scores,
        explanation.bonds,
        explanation.bond_scores,
        signed=explanation.signed,
        limit=explanation.score_limit,
        caption=caption,
        ends=ends,
        **size,
    )
    return drawing.png()


def linear(color):
    return np.array([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color])


def contrast(one, other):
    a, b = sorted(linear(c) @ [0.2126, 0.7152, 0.0722] + 0.05 for c in (one, other))
    return b / a


@pytest.mark.parametrize("kind", BLINDNESS)
def test_up_down_and_nothing_differ_in_color_blindness(kind):
    seen = [np.clip(BLINDNESS[kind] @ linear(c), 0, 1) for c in (RAISE, LOWER, NEUTRAL)]
    for one in range(3):
        for other in range(one):
            assert np.abs(seen[one] - seen[other]).max() > 0.25


def test_black_letters_can_be_read_on_every_color():
    assert all(contrast(c, (0.0, 0.0, 0.0)) >= 4.5 for c in (RAISE, LOWER, SHARE))


@pytest.mark.parametrize("signed", [True, False])
def test_the_scale_is_linear_symmetric_and_saturates(signed):
    full = np.array(score_color(2.0, 2.0, signed=signed))
    half = np.array(score_color(1.0, 2.0, signed=signed))
    assert half == pytest.approx((full + 1) / 2)
    assert score_color(9.0, 2.0, signed=signed) == tuple(full)
    assert score_color(0.0, 0.0, signed=signed) == NEUTRAL


def circles(svg):
    """Fill of the circle behind each atom, 0 to 1."""
    found = {}
    for shape in ElementTree.fromstring(svg).iter(SVG + "ellipse"):
        atom = int(re.fullmatch(r"atom-(\d+)", shape.get("class"))[1])
        fill = re.search(r"fill:#(\w{6})", shape.get("style"))[1]
        found[atom] = [int(fill[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    return found


def test_each_atom_of_the_svg_has_the_color_of_its_score(explanation):
    found = circles(explanation.draw())
    assert sorted(found) == [0, 1, 3]  # what has no score has no color
    for atom, color in found.items():
        expected = score_color(explanation.atom_scores[atom], 1.0, signed=True)
        assert color == pytest.approx(expected, abs=0.005)


def test_the_png_shows_the_same_colors(explanation):
    image = Image.open(io.BytesIO(png_of(explanation, width=300, height=260)))
    assert image.size == (600, 520)
    colors = {color for _, color in image.convert("RGB").getcolors(1 << 20)}
    for score in (0.5, -1.0, 0.25):
        expected = [255 * part for part in score_color(score, 1.0, signed=True)]
        assert min(np.abs(np.array(c) - expected).max() for c in colors) <= 1.5


def test_the_legend_is_in_the_unit_of_the_target(explanation):
    caption, ends = explanation.legend_lines
    assert caption.endswith('logS <b onclick="alert(2)">& (log mol/L)')
    assert ends == ["\N{MINUS SIGN}1", "0", "+1"]
    texts = [part.text for part in ElementTree.fromstring(explanation.draw()).iter(SVG + "text")]
    assert {caption, *ends} <= {*texts}
    other = replace(explanation, other_scores={"descriptors": -1.834, "Morgan counts": 0.5})
    assert (
        other.legend_lines[0] == f"{caption}; descriptors: \N{MINUS SIGN}1.83; Morgan counts: 0.5"
    )
    share = replace(explanation, signed=False, atom_scores=np.array([0.2, 0, 0, 0])).legend_lines
    assert share[1] == ["0", "0.2"]


def test_texts_of_the_user_are_texts(explanation):
    tree = ElementTree.fromstring(replace(explanation, target='"]]><script>µ</script>').draw())
    names = {part.tag.removeprefix(SVG) for part in tree.iter()}
    assert names <= {"svg", "title", "rect", "path", "ellipse", "text"}


@pytest.mark.parametrize("smiles", ["C", "[Na+].[Cl-]", "C" * 60, "C[C@H](N)C(=O)O |$<b>;;;;;$|"])
def test_any_molecule_is_drawn(small_model, smiles):
    found = explain(small_model, smiles, "attention")
    ElementTree.fromstring(found.draw())
    assert Image.open(io.BytesIO(png_of(found))).format == "PNG"
    outline = molecule_outline(smiles)
    assert len(outline.atoms) == found.num_atoms
    assert all(re.fullmatch(r"[MLQCZ\d., -]+", data) for data, _ in outline.paths)
    assert all(0 <= x <= outline.width and 0 <= y <= outline.height for x, y in outline.atoms)


def test_a_molecule_that_is_too_large_is_replaced_by_a_sentence(small_model):
    found = explain(small_model, "C" * 201, "attention")
    assert molecule_outline(found.smiles) is None
    root = ElementTree.fromstring(found.draw())
    assert (root.attrib["width"], root.attrib["height"]) == ("420px", "340px")
    texts = [one.text for one in root.iter() if one.tag.endswith("}text")]
    assert "Not drawn: more than 200 atoms," in texts
    image = np.asarray(Image.open(io.BytesIO(png_of(found))).convert("L"), dtype=float)
    assert image.shape == (680, 840)
    assert (image[220:340] < 100).sum() > 500  # letters in the middle
    assert (image[:220] == 255).all()


def test_a_notebook_shows_the_svg_and_save_writes_both_kinds(explanation, tmp_path):
    assert explanation._repr_html_() == explanation.draw()
    explanation.save(tmp_path / "a.svg")
    explanation.save(tmp_path / "a.PNG")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == explanation.draw()
    assert (tmp_path / "a.PNG").read_bytes() == png_of(explanation)
    with pytest.raises(InputError, match=r"got the file extension '.gif', expected .svg or .png"):
        explanation.save(tmp_path / "a.gif")
    with pytest.raises(InputError, match="cannot be written"):
        explanation.save(tmp_path / "none" / "a.svg")
