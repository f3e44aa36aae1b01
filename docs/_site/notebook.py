"""A notebook as a page: ``python docs/_site/notebook.py NOTEBOOK FOLDER`` runs it there.

Cells are executed in the folder, and the page ``NAME.md`` has what they print, their last
expression and their figures, as Jupyter shows them. Cells are Python, or commands after ``!``.
Jupyter itself is not needed.
"""

import ast
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

_PICTURE = re.compile(r"(!\[[^\]]*\])\(([^):]+\.png)\)")


def run(notebook: Path) -> str:
    """Run a notebook in the current folder and return it as Markdown; pictures are files."""
    page: list[str] = []
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            page.append(_PICTURE.sub(_kept, source))
            continue
        is_shell = source.startswith("!")
        code = source.removeprefix("!")
        page.append(f"```{'sh' if is_shell else 'python'}\n{code}\n```")
        shown = _run_command(code) if is_shell else _run_python(code, names, notebook.name)
        page += shown
        for figure in map(plt.figure, plt.get_fignums()):
            name = f"{notebook.stem}-{number}.png"
            figure.savefig(name, dpi=120)
            plt.close(figure)
            page.append(f"![Figure of the code above]({name})")
    return "\n\n".join(page) + "\n"


def _kept(found: re.Match[str]) -> str:
    """Copy a picture that a cell made, if it is one, beside the page."""
    made = Path(found[2])
    if not made.is_file():
        return found[0]
    name = "-".join(made.parts)
    shutil.copy(made, name)
    return f"{found[1]}({name})"


def _run_command(command: str) -> list[str]:
    done = subprocess.run(
        command,
        shell=True,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stdout}")
    return _text(done.stdout)


def _run_python(code: str, names: dict[str, Any], file: str) -> list[str]:
    tree = ast.parse(code, file)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, file, "exec"), names)
        value = (
            eval(compile(ast.Expression(last.value), file, "eval"), names)
            if isinstance(last, ast.Expr)
            else None
        )
    if value is None or code.rstrip().endswith(";"):
        return _text(printed.getvalue())
    if hasattr(value, "_repr_html_"):
        html = re.sub(r"<style.*?</style>\s*", "", value._repr_html_(), flags=re.DOTALL)
        html = html.replace(' border="1" class="dataframe"', "")
        return [*_text(printed.getvalue()), html]
    return _text(f"{printed.getvalue()}{value!r}")


def _text(output: str) -> list[str]:
    return [f"```text\n{output.rstrip()}\n```"] if output.strip() else []


if __name__ == "__main__":
    source, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    os.chdir(folder)
    # Commands are found beside this Python, and write as into a file of 88 columns.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ |= {"COLUMNS": "88", "NO_COLOR": "1"}
    Path(f"{source.stem}.md").write_text(run(source), encoding="utf-8")
