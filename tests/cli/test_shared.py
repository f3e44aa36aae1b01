import os
import subprocess
import sys

import pytest

from molattn.cli import main
from molattn.model.artefact import PACKAGED


def test_a_command_goes_on_when_the_reader_of_its_output_stops():
    code = (
        "import sys\n"
        "from molattn.cli.shared import make_console\n"
        "console = make_console()\n"
        "for _ in range(3):\n"
        "    console.print('line')\n"
        "print('done', file=sys.stderr)\n"
    )
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=pipe, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (0, "done\n")


@pytest.mark.parametrize("command", ["explain", "fingerprint", "verify"])
def test_help_names_the_packaged_models(command, capsys):
    assert main([command, "--help"]) == 0
    names = ", ".join(sorted(path.parent.name for path in PACKAGED.glob("*/config.json")))
    assert f"or a packaged model: {names}." in " ".join(capsys.readouterr().out.split())
