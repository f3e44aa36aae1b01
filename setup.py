"""The one build step that pyproject.toml cannot state; everything else is declared there.

``datasets/`` is a folder of the repository and no package. A wheel carries its solubility table
inside ``molattn``, so that ``molattn train`` finds data however the wheel was installed.
"""

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


setup(cmdclass={"build_py": BuildWithData})
