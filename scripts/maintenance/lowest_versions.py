"""Print the oldest versions that pyproject.toml allows, as constraints for pip; torch is as pinned.

python scripts/maintenance/lowest_versions.py > lowest.txt
CONSTRAINTS=lowest.txt scripts/maintenance/test_distribution.sh python3.11 wheel
"""

import tomllib
from pathlib import Path

# Extras of users; those of developers are the pinned versions of constraints.txt.
EXTRAS = ("excel", "ray", "serve", "tune")

if __name__ == "__main__":
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    extras = [one for extra in EXTRAS for one in project["optional-dependencies"][extra]]
    for requirement in [*project["dependencies"], *extras]:
        name, version = requirement.split(">=")
        if name != "torch":
            print(f"{name.partition('[')[0]}=={version}")
    print(*(pin for pin in pins if pin.startswith("torch==")))
