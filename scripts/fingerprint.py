"""The command ``molattn fingerprint``, from a checkout."""

import sys

from molattn.cli import run

if __name__ == "__main__":
    run(["fingerprint", *sys.argv[1:]])
