"""What every test stands on: seeds, threads, example generation and browsers."""

import csv
import functools
import importlib.metadata
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import hypothesis
import numpy as np
import pytest
import torch

# Small tensors gain nothing from threads, and one thread adds in the same order every time.
torch.set_num_threads(1)

# Each training and each command asks for installed plugins, which reads a file of each package.
importlib.metadata.entry_points = functools.cache(importlib.metadata.entry_points)

# Texts are as wide wherever and in whatever order tests run: a console keeps its first width.
os.environ["COLUMNS"] = "100"

# A job in the background of a script ignores interrupts, which tests send to themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Seconds after which a test that hangs is ended. Nothing needs a twentieth of it on any machine.
HANGING = 600

# Neither a deadline per example nor a check of how fast examples are drawn: machines differ.
_ANY_SPEED = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("local", **_ANY_SPEED)
hypothesis.settings.register_profile("ci", **_ANY_SPEED, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("fuzz", **_ANY_SPEED, max_examples=3000)  # make fuzz
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


# Whatever a page needs must be in it: nothing is fetched, by it or by the browser itself.
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_BROWSER_ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking "
    "--disable-component-update --disable-sync --no-first-run --proxy-server=127.0.0.1:9"
).split()

OpenPage = Callable[..., AbstractContextManager[Any]]


def rows_of(path: Path) -> list[dict[str, str]]:
    """Read a CSV file."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def saved(folder: Path, text: str) -> Path:
    """Write a CSV file."""
    path = folder / "in.csv"
    path.write_text(text)
    return path


def assert_one_line(error: Exception) -> None:
    """Check that a message is one printable line of at most 4 kB."""
    assert str(error).isprintable()
    assert len(str(error)) <= 4096


@pytest.fixture(scope="session", autouse=True)
def _known_descriptors() -> Iterator[None]:
    """Calculate RDKit's descriptors of a molecule once: of a small training they take a third."""
    known: dict[Any, list[Any]] = {}

    def calculated(mol: Any, names: Any) -> list[Any]:
        key = (mol.ToBinary(), *names)
        if key not in known:
            known[key] = calculate(mol, names)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        module = importlib.import_module("molattn.chem.descriptors")
        calculate = vars(module)["_descriptors"]
        patch.setattr(module, "_descriptors", calculated)
        yield


@pytest.fixture(scope="module")
def without_figures() -> Iterator[None]:
    """Leave out the figures of runs, which take most of the time of a small training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("molattn.evaluation.report.run_files.run_plots", lambda *_: {})
        patch.setattr("molattn.evaluation.report.run_files.learning_curve", MagicMock())
        yield


@pytest.fixture(scope="module")
def model_folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the module's own ``model``."""
    folder = tmp_path_factory.mktemp("run") / "model"
    model.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 (for libraries that draw from the global state)


class RayCluster(NamedTuple):
    """A Ray cluster of two nodes with a CPU each, on this machine."""

    address: str
    raylets: tuple[int, ...]

    def workers(self) -> list[int]:
        """Process ids of the workers that have been started."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parent = int(process.joinpath("stat").read_text().rpartition(")")[2].split()[1])
                name = process.joinpath("cmdline").read_bytes()
                if parent in self.raylets and name.startswith(b"ray::MapWorker"):
                    found.append(int(process.name))
        return found


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    pytest.importorskip("ray", reason="ray is not installed (make test-ray)")
    from ray.cluster_utils import Cluster

    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    raylets = [node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()]
    yield RayCluster(cluster.address, tuple(raylets))
    cluster.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The headless browser of this machine, by Playwright's own class; nothing is downloaded."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(_BROWSERS)} is on the path, nor CHROMIUM set")
    with playwright.sync_playwright() as driver:
        options = {"args": _BROWSER_ARGUMENTS, "timeout": 1000 * HANGING}
        browser = driver.chromium.launch(executable_path=program, **options)
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
        context.set_default_timeout(1000 * HANGING)
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


# Text whose color is too near that of its background (WCAG 2: 4.5 to 1), in the page's own light,
# and letters of atoms too near the fullest color behind them.
_CONTRASTS = """() => {
  const parts = c => c.match(/[\\d.]+/g).map(Number);
  const light = c => {
    const [r, g, b] = parts(c).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if ((parts(c)[3] ?? 1) === 1) return c;
    }
    return 'rgb(255, 255, 255)';
  };
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!own || ['STYLE', 'TITLE', 'SCRIPT', 'NOSCRIPT'].includes(e.tagName)) continue;
    const style = getComputedStyle(e);
    const color = e instanceof SVGElement ? style.fill : style.color;
    if (e.disabled || ratio(color, behind(e)) >= 4.5) continue;
    found.push([e.tagName, e.textContent.trim(), color]);
  }
  for (const swatch of document.querySelectorAll('.swatch')) {
    const ink = getComputedStyle(document.body).color;
    const color = getComputedStyle(swatch).backgroundColor;
    if (ratio(ink, color) < 4.5) found.push(['letters on', swatch.className, color]);
  }
  return found;
}"""


# Texts in columns of a character or two a line, and texts that leave a box around them.
_SQUEEZED_OR_SPILT = """() => {
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = texts.nextNode());) {
    const text = node.data.trim();
    const range = document.createRange();
    range.selectNodeContents(node);
    const rects = [...range.getClientRects()].filter(r => r.width);
    if (!text || !rects.length || node.parentElement.closest('svg, option, .hidden')) continue;
    const lines = new Set(rects.map(r => r.top)).size;
    if (lines > 1 && text.length / lines < 3) found.push(['squeezed', text]);
    for (let box = node.parentElement; box !== document.body; box = box.parentElement) {
      const style = getComputedStyle(box);
      if (style.overflowX !== 'visible' || style.position === 'absolute') break;
      if (style.display.startsWith('inline') || style.display === 'contents') continue;
      const edge = box.getBoundingClientRect();
      const spilt = rects.some(r => r.left < edge.left - 1 || r.right > edge.right + 1);
      if (spilt) { found.push(['spilt', text, box.tagName, box.className]); break; }
    }
  }
  return found;
}"""


def assert_fits_and_can_be_read(page: Any, width: int) -> None:
    """Check that a page is no wider than its window, and that its texts fit and stand out."""
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(_SQUEEZED_OR_SPILT) == []
    assert page.evaluate(_CONTRASTS) == []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(scope="session")
def benchmark_accuracy() -> Iterator[Any]:
    """The script that compares models, and the path to what it imports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[1])
        yield importlib.import_module("scripts.accuracy.benchmark_accuracy")


@pytest.fixture(scope="session")
def layer_table() -> Iterator[str]:
    """The table of layers, made by the sources of the documentation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[1] / "docs" / "_site")
        yield importlib.import_module("layer_table").layer_table()


@pytest.fixture(scope="session")
def accuracy(benchmark_accuracy: Any) -> Callable[[str], Any]:
    """A module of that script by its name."""
    return lambda name: importlib.import_module(f"scripts.accuracy.{name}")
