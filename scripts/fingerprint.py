"""The command ``molattn fingerprint``, from a checkout."""

import sys

from molattn.cli import main

if __name__ == "__main__":
    sys.exit(main(["fingerprint", *sys.argv[1:]]))
