import re
from pathlib import Path

import jinja2
import pytest
from jinja2.meta import find_referenced_templates

import molattn
from molattn.utils.html import page_environment

PACKAGE = Path(molattn.__file__).parent
SHARED = PACKAGE / "utils" / "templates"
FOLDERS = sorted({path.parent for path in PACKAGE.rglob("templates/*")})


def test_text_is_escaped_and_undefined_names_are_errors(tmp_path):
    (tmp_path / "page.html").write_text(
        '{% extends "base.html" %}{% block main %}{{ a }}{% endblock %}'
    )
    page = page_environment(tmp_path).get_template("page.html")
    text = page.render(name="<x>", a="<script>")
    assert "&lt;script&gt;" in text
    assert "<title>&lt;x&gt; " in text
    assert f'content="molattn {molattn.__version__}"' in text
    with pytest.raises(jinja2.UndefinedError):
        page.render(name="x")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_templates_refer_only_to_their_own_folder_and_the_shared_one(folder):
    known = {path.name for place in (folder, SHARED) for path in place.iterdir()}
    for path in folder.glob("*.html"):
        tree = jinja2.Environment().parse(path.read_text(encoding="utf-8"))
        assert {*find_referenced_templates(tree)} <= known
    for path in folder.parent.glob("*.py"):
        names = re.findall(r'get_template\("([^"]*)"\)', path.read_text(encoding="utf-8"))
        assert {*names} <= known
