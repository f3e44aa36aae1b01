"""The command ``molattn train``, from a checkout."""

import sys

from molattn.cli import run

if __name__ == "__main__":
    run(["train", *sys.argv[1:]])
