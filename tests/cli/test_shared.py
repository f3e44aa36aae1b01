import os
import subprocess
import sys


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
