import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLEAN = '''\
"""Examples of names."""


def weigh(atoms):
    """Return the weights of the atoms."""
    first, second = divmod(len(atoms), 2)
    return [atom.weight for atom in atoms if first > second]
'''


@pytest.fixture
def refuse(monkeypatch, tmp_path):
    """Line and name of all that is refused in a module, if only its size gives it limits."""
    monkeypatch.syspath_prepend(ROOT / "scripts" / "counts")
    check_names = importlib.import_module("check_names")

    def refuse(text, limits=None):
        path = tmp_path / "module.py"
        path.write_text(text)
        limits = check_names.final_limits([("chem", path)]) | (limits or {})
        refused = check_names.refused(check_names.check_module("chem", path), limits)
        assert {finding.path for finding in refused} <= {path}
        return sorted((finding.line, finding.text) for finding in refused)

    return refuse


def test_plain_names_pass(refuse):
    assert refuse(CLEAN) == []


@pytest.mark.parametrize(
    "line",
    [
        "one = 1",
        "def f(one): return 1",
        "g = lambda *, one: 1",
        "for one in (): pass",
        "h = [1 for one in ()]",
        "first, (one, *rows) = 1, (2, 3)",
        "one: int = 1",
        "with open('f') as one: pass",
        "if one := 1: pass",
    ],
)
def test_a_vague_name_is_refused_wherever_it_is_bound(refuse, line):
    assert (9, "one") in refuse(f"{CLEAN}\n{line}\n")


def test_reading_a_vague_name_is_not_refused(refuse):
    assert refuse(f"{CLEAN}\nprint(one, known.given)\n") == []


def test_ten_vague_names_with_a_reason_pass_and_an_eleventh_does_not(refuse):
    line = "one = 1  # name: the number\n"
    assert refuse(CLEAN + 10 * line) == []
    assert len(refuse(CLEAN + 11 * line)) == 11
    assert refuse(CLEAN + "one = 1  # the number\n") == [(8, "one")]


def test_an_empty_word_is_refused_where_it_is_more_frequent_than_its_limit(refuse):
    text = CLEAN + "item = 1\n"
    assert refuse(text) == [(8, "item")]
    assert refuse(text, {"empty_names": {"item": 1}}) == []


def test_five_of_1000_lines_may_assign_several_names(refuse):
    plain = "x = 1\n" * 195
    assert refuse(f"{plain}a, b = 1, 2\n") == [(196, "(a, b)")]
    assert refuse(f"{plain}a, b = 1, 2\n{plain}") == []
    assert refuse(f"{plain}a, b = 1, 2\n# a comment\n\n" + "'text'\n" * 3) == [(196, "(a, b)")]
    assert refuse(f'{plain}a, b = 1, 2\ndef f():\n    """\n{plain}"""\n') == [(196, "(a, b)")]
