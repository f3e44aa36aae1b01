"""The command ``molattn pretrain``, from a checkout."""

import sys

from molattn.cli import run

if __name__ == "__main__":
    run(["pretrain", *sys.argv[1:]])
