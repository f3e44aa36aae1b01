"""The build steps that pyproject.toml cannot state; everything else is declared there.

``datasets/`` is a folder of the repository and no package. A wheel carries its solubility table
inside ``molattn``, so that ``molattn train`` finds data however the wheel was installed. Links of
the README are relative to the repository; the long description has its address in front.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

BUNDLED = Path("datasets", "solubility.csv")


class BuildWithData(build_py):
    """Copy the bundled data beside the modules; an editable install reads it where it lies."""

    def run(self) -> None:
        """Build the package, then add the data."""
        super().run()
        if not self.editable_mode:
            self.copy_file(str(BUNDLED), str(Path(self.build_lib, "molattn", BUNDLED.name)))

    def get_source_files(self) -> list[str]:
        """Name the data as a source, which puts it into the source distribution."""
        return [*super().get_source_files(), str(BUNDLED)]


def long_description(readme: str, repository: str) -> str:
    """Return the README with badges and whole addresses; as it is without a repository."""
    if not repository:
        return readme

    def absolute(found: re.Match[str]) -> str:
        kind = "raw" if found[1].startswith("!") else "blob"
        return f"{found[1]}({repository}/{kind}/main/{found[2]})"

    text = re.sub(r"(!?\[[^\]]*\])\((?!https?://|#)([^)]+)\)", absolute, readme)
    workflow = f"{repository}/actions/workflows/ci.yml"
    return text.replace("\n", f"\n\n[![CI]({workflow}/badge.svg)]({workflow})\n", 1)


def project_urls(repository: str) -> dict[str, str]:
    """Return the addresses of the project; none without a repository."""
    pages = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md"}
    urls = {name: f"{repository}/blob/main/{path}" for name, path in pages.items()}
    urls |= {"Repository": repository, "Issues": f"{repository}/issues"}
    return urls if repository else {}


if __name__ == "__main__":
    settings = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["tool"]["molattn"]
    setup(
        cmdclass={"build_py": BuildWithData},
        long_description=long_description(
            Path("README.md").read_text(encoding="utf-8"), settings["repository"]
        ),
        long_description_content_type="text/markdown",
        project_urls=project_urls(settings["repository"]),
    )
