"""The command ``molattn predict``, from a checkout."""

import sys

from molattn.cli import run

if __name__ == "__main__":
    run(["predict", *sys.argv[1:]])
