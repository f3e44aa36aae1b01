"""The command ``molattn verify``, from a checkout."""

import sys

from molattn.cli import run

if __name__ == "__main__":
    run(["verify", *sys.argv[1:]])
