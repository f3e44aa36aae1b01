"""The command ``molattn tune``, from a checkout."""

import sys

from molattn.cli import run

if __name__ == "__main__":
    run(["tune", *sys.argv[1:]])
