"""Count the files of molattn that name an option, from the command to where it is used.

    python scripts/counts/count_option.py patience epochs init_from
    python scripts/counts/count_option.py patience --at HEAD~100 --files

A file names an option as an attribute (``config.patience``), as a text (``"patience"``), as a flag
(``--patience``), as an argument (``patience=3``) or where it is declared (``patience: int``).
"""

import argparse
import re
import subprocess
from pathlib import Path


def files_naming(option: str, revision: str | None) -> list[str]:
    """Return the modules that name an option, now or at a revision of git."""
    name, flag = re.escape(option), re.escape(option.replace("_", "-"))
    pattern = rf"\.{name}\b|[\"']{name}[\"']|--{flag}\b|\b{name}=|^ +{name}: "
    line = ["git", "grep", "-lP", pattern, *([revision] if revision else []), "--", "molattn/*.py"]
    root = Path(__file__).resolve().parents[2]
    found = subprocess.run(line, cwd=root, capture_output=True, text=True, check=False)
    return [name.rpartition(":")[2] for name in found.stdout.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("options", nargs="+", help="options by their names in Python")
    parser.add_argument("--at", help="a revision of git; by default the working tree")
    parser.add_argument("--files", action="store_true", help="list the files too")
    arguments = parser.parse_args()
    for option in arguments.options:
        files = files_naming(option, arguments.at)
        print(f"{option:<24}{len(files):>4}", *(files if arguments.files else ()), sep="\n  ")


if __name__ == "__main__":
    main()
