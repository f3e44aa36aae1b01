"""The command ``molattn explain``, from a checkout."""

import sys

from molattn.cli import run

if __name__ == "__main__":
    run(["explain", *sys.argv[1:]])
