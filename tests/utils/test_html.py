import ast
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
MODULE = re.compile(r"molattn(\.\w+)+")


def test_text_is_escaped_and_undefined_names_are_errors(tmp_path):
    (tmp_path / "page.html").write_text(
        '{% extends "base.html" %}{% block main %}{{ a }}{% endblock %}'
    )
    page = page_environment(tmp_path).get_template("page.html")
    text = page.render(name="<x>", a="<script>")
    assert "&lt;script&gt;" in text
    assert "<title>&lt;x&gt; " in text
    assert f'content="molattn {molattn.__version__}"' in text
    assert (SHARED / "style.css").read_text().strip() in text
    with pytest.raises(jinja2.UndefinedError):
        page.render(name="x")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_templates_refer_only_to_their_own_folder_and_the_shared_one(folder):
    known = {path.name for place in (folder, SHARED) for path in place.iterdir()}
    if folder != SHARED:
        assert not {path.name for path in folder.iterdir()} & {
            path.name for path in SHARED.iterdir()
        }
    for path in folder.glob("*.html"):
        tree = jinja2.Environment().parse(path.read_text(encoding="utf-8"))
        assert {*find_referenced_templates(tree)} <= known
    for path in folder.parent.glob("*.py"):
        names = re.findall(r'get_template\("([^"]*)"\)', path.read_text(encoding="utf-8"))
        assert {*names} <= known


def test_no_string_names_another_package():
    """Import-linter sees no package that is named by a string."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and MODULE.fullmatch(node.value)
            ):
                found.add((path.relative_to(PACKAGE).as_posix(), node.value))
    # The group of entry points has the name of no module.
    assert found == {("utils/registry.py", "molattn.plugins")}
