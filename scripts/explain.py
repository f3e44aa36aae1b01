"""The command ``molattn explain``, from a checkout."""

import sys

from molattn.cli import main

if __name__ == "__main__":
    sys.exit(main(["explain", *sys.argv[1:]]))
