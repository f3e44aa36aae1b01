"""The command ``molattn tune``, from a checkout."""

import sys

from molattn.cli import main

if __name__ == "__main__":
    sys.exit(main(["tune", *sys.argv[1:]]))
