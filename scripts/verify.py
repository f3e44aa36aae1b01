"""The command ``molattn verify``, from a checkout."""

import sys

from molattn.cli import main

if __name__ == "__main__":
    sys.exit(main(["verify", *sys.argv[1:]]))
