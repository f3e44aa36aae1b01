"""``python -m molattn``: the command line."""

from molattn.cli import run

if __name__ == "__main__":
    run()
