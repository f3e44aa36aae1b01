"""Print the oldest versions that pyproject.toml allows, as constraints for pip.

python scripts/lowest_versions.py > lowest.txt
CONSTRAINTS=lowest.txt scripts/test_distribution.sh python3.11 wheel
"""

import tomllib
from pathlib import Path

# Extras of users; those of developers are the pinned versions of constraints.txt.
EXTRAS = ("excel", "ray", "serve", "tensorboard", "tune")

if __name__ == "__main__":
    content = Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(content)["project"]
    extras = (project["optional-dependencies"][extra] for extra in EXTRAS)
    for requirement in sum(extras, project["dependencies"]):
        name, version = requirement.split(">=")
        print(f"{name.partition('[')[0]}=={version}")
