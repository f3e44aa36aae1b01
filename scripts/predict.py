"""The command ``molattn predict``, from a checkout."""

import sys

from molattn.cli import main

if __name__ == "__main__":
    sys.exit(main(["predict", *sys.argv[1:]]))
