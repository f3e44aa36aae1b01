"""What every test stands on: seeds, threads, example generation and the optional larger data."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch

# Small tensors gain nothing from threads, and one thread adds in the same order every time.
torch.set_num_threads(1)

# First calls compile, import and fill caches, so a deadline per example would only flake.
hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


# Whatever a page needs must be in it: nothing is fetched, by it or by the browser itself.
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_BROWSER_ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking "
    "--disable-component-update --disable-sync --no-first-run --proxy-server=127.0.0.1:9"
).split()

OpenPage = Callable[..., AbstractContextManager[Any]]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 (for libraries that draw from the global state)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of larger real data sets beside the checkout, which not every machine has."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no larger data sets at {folder}")
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The headless browser of this machine, by Playwright's own class; nothing is downloaded."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(_BROWSERS)} is on the path, nor CHROMIUM set")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=_BROWSER_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Any) -> OpenPage:
    """Open a file as a page that must neither complain nor ask for anything besides itself.

    Takes the path, the width of the window, and options of Playwright's context such as
    ``color_scheme``; a context manager of the page.
    """

    @contextmanager
    def opened(path: Path, width: int = 1280, **options: Any) -> Iterator[Any]:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        page = context.new_page()
        complaints: list[str] = []
        asked: list[str] = []

        def dismiss(dialog: Any) -> None:
            complaints.append(f"dialog: {dialog.message}")
            dialog.dismiss()

        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", dismiss)
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri(), wait_until="load")
        yield page
        context.close()
        assert complaints == []
        assert [url for url in asked if not url.startswith("data:")] == [path.as_uri()]

    return opened


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
