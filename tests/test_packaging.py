"""The distributions that are built hold what they should."""

import email
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parents[1]
NOT_SOURCES = (".*", "__pycache__", "*.egg-info", "build", "dist", "runs", "site")
MODULES = sorted((ROOT / "molattn").rglob("*.py"))


def python(code, *, cwd=ROOT, **environment):
    """Run code in a fresh interpreter and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """A source distribution, unpacked; built from a copy, as building leaves files behind."""
    source = tmp_path_factory.mktemp("source") / "copy"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*NOT_SOURCES))
    build = "from setuptools import build_meta; build_meta.build_sdist('dist')"
    python(build, cwd=source)
    (built,) = (source / "dist").glob("*.tar.gz")
    with tarfile.open(built) as archive:
        archive.extractall(source.parent, filter="data")
    return source.parent / built.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(sdist):
    """A wheel built from the source distribution."""
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", "dist", "."]
    subprocess.run(command, cwd=sdist, check=True, capture_output=True)
    (built,) = (sdist / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Folder into which the wheel is installed, which precedes all others on the path."""
    target = tmp_path_factory.mktemp("installed")
    options = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), wheel]
    subprocess.run(command, check=True, capture_output=True)
    return target


def test_source_distribution_holds_all_that_its_tests_read(sdist):
    files = [ROOT / name for name in ("Makefile", "constraints.txt", "mkdocs.yml")]
    files += ROOT.glob("*.md")
    for folder in ("datasets", "docs", "molattn", "scripts", "tests"):
        files += (ROOT / folder).rglob("*")
    expected = {path.relative_to(ROOT) for path in files if path.is_file()}
    expected = {path for path in expected if "__pycache__" not in path.parts}
    assert Path("tests/conftest.py") in expected
    assert expected <= {path.relative_to(sdist) for path in sdist.rglob("*")}


def test_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {*archive.namelist()}
    expected = {str(path.relative_to(ROOT)) for path in MODULES}
    expected |= {"molattn/py.typed", "molattn/solubility.csv"}
    templates = [*(ROOT / "molattn").rglob("templates/*")]
    assert templates
    weights = [*(ROOT / "molattn/model/weights").glob("*/*")]
    packaged = {"admet", "base", "base-large", "base-minimol", "base-small"}
    assert {path.parent.name for path in weights} == packaged
    page = [path for path in (ROOT / "molattn/serve/page").rglob("*") if path.is_file()]
    assert page
    expected |= {str(path.relative_to(ROOT)) for path in [*templates, *weights, *page]}
    assert {name for name in names if ".dist-info/" not in name} == expected


def test_wheel_declares_the_command(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (entry_points,) = (n for n in archive.namelist() if n.endswith("/entry_points.txt"))
        assert "molattn = molattn.cli:run" in archive.read(entry_points).decode()


def test_installed_package_finds_its_data(installed, tmp_path):
    code = "from molattn.data.table import bundled_dataset; print(bundled_dataset())"
    found = Path(python(code, cwd=tmp_path, PYTHONPATH=str(installed)))
    assert found == installed / "molattn" / "solubility.csv"
    assert found.read_bytes() == (ROOT / "datasets" / "solubility.csv").read_bytes()


def test_metadata_is_that_of_the_readme_and_the_address(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    make = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
    readme, address = (ROOT / "README.md").read_text(), "https://example.org/a/b"
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["molattn"]
    text = make["long_description"](readme, settings["repository"])
    assert metadata.get_payload(decode=True).decode().strip() == text.strip()
    assert "all" in metadata.get_all("Provides-Extra")
    text = make["long_description"](readme, address)
    links = re.findall(r"\]\(([^)#][^)]*)\)", text)
    assert all(link.startswith("https://") for link in links)
    assert f"]({address}/blob/main/docs/accuracy.md)" in text
    assert f"]({address}/raw/main/docs/images/serve-what-if.png)" in text
    assert make["project_urls"](address)["Issues"] == f"{address}/issues"


@pytest.mark.parametrize("name", ["datasets", "scripts", "tests"])
def test_folders_of_the_repository_are_not_importable(installed, tmp_path, name):
    code = f"from importlib.util import find_spec; print(find_spec({name!r}))"
    # Another distribution may hold the name; these two places may not.
    found = python(code, cwd=tmp_path, PYTHONPATH=str(installed))
    assert str(installed / name) not in found
    assert str(ROOT / name) not in found
