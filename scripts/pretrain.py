"""The command ``molattn pretrain``, from a checkout."""

import sys

from molattn.cli import main

if __name__ == "__main__":
    sys.exit(main(["pretrain", *sys.argv[1:]]))
