import jinja2
import pytest

import molattn
from molattn.utils.html import page_environment


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
