"""Saved models: a folder of safetensors and JSON files, without pickles."""

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import safetensors.numpy
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from molattn.config.base import checked
from molattn.errors import InputError, quoted
from molattn.task import Task
from molattn.utils.console import counted
from molattn.utils.files import UNFINISHED, atomic_folder, write_file

if TYPE_CHECKING:
    from torch import Tensor, nn

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CALIBRATION_FILE = "calibration.json"
FINGERPRINTS_FILE = "training_fingerprints.safetensors"
SITE_CALIBRATION_FILE = "site_calibration.json"
LABELED_SITES_FILE = "labeled_sites.json"
ENVIRONMENTS_FILE = "site_environments.safetensors"
SITE_PROCESS_FILES = {"atom": "atom_process.safetensors", "bond": "bond_process.safetensors"}
GAUSSIAN_PROCESS_FILE = "gaussian_process.safetensors"
LABELS_FILE = "training_labels.json"
MOLECULES_FILE = "training_molecules.safetensors"
ENDPOINTS_FILE = "endpoints.json"
VERSIONS_FILE = "reference_inputs.json"
UPDATES_FILE = "updates.json"
MANIFEST_FILE = "manifest.json"
_PREDICTION = CONFIG_FILE, WEIGHTS_FILE, CALIBRATION_FILE, FINGERPRINTS_FILE, GAUSSIAN_PROCESS_FILE
_TRAINING = LABELS_FILE, MOLECULES_FILE, ENDPOINTS_FILE, VERSIONS_FILE, UPDATES_FILE
_SITES = SITE_CALIBRATION_FILE, LABELED_SITES_FILE, ENVIRONMENTS_FILE, *SITE_PROCESS_FILES.values()
MODEL_FILES = (*_PREDICTION, *_SITES, *_TRAINING, MANIFEST_FILE)

MODEL_CARD = """A molecular property predictor trained with molattn.

    from molattn import MolAttn
    model = MolAttn.from_pretrained("FOLDER")
{calls}

Predicted properties:

{properties}
"""

PACKAGED = Path(__file__).parent / "weights"
"""Models of the package, each in a folder of its name."""

Kind = TypeVar("Kind")


@checked
class Update:
    """A table of new measurements that a trained model has learned from."""

    date: str  # as 2026-01-31
    table: str  # name of the file
    sha256: str
    rows: int
    labels: dict[str, int]  # number of measured ones of each task that has any
    recalibrated: tuple[str, ...] = ()  # what was recalibrated, a line for each

    def __str__(self) -> str:
        counts = ", ".join(f"{quoted(name)}: {count:,}" for name, count in self.labels.items())
        rows = f"{counted(self.rows, 'row')} of {self.table} ({counts or 'censored labels only'})"
        return f"updated on {self.date} with {rows}"


def find_model(name: str | Path) -> Path:
    """Return the folder of a saved model.

    ``name`` is this folder, the folder of the run that trained it, or a file in either; or the name
    of a packaged model, such as ``base``, unless a folder of this name has a model.
    """
    path = Path(name)
    folder = path.parent if path.is_file() else path
    for candidate in (folder, folder / "model"):
        if (candidate / CONFIG_FILE).is_file():
            return candidate
    if is_packaged(name):
        return PACKAGED / name
    expected = "expected the folder of a saved model"
    if folds := sorted(folder.glob("*fold_*/model")):
        raise InputError(f"{name}: a cross-validation; {expected}, such as {folds[0].parent}")
    if path.exists():
        problem = "a file" if path.is_file() else f"has no {CONFIG_FILE}"
        raise InputError(f"{name}: {problem}; {expected}")
    if Path(f"{name}{UNFINISHED}").is_dir():
        raise InputError(f"{name}: the run is unfinished (to resume: --resume {name})")
    packaged = ", ".join(packaged_models())
    raise InputError(f"{name}: no such folder; {expected}, or a packaged model: {packaged}")


def packaged_models() -> list[str]:
    """Return the names of the models of the package."""
    return sorted(path.parent.name for path in PACKAGED.glob(f"*/{CONFIG_FILE}"))


def is_packaged(name: str | Path) -> bool:
    """Return whether the package has a model of this name."""
    return str(name) in packaged_models()


def to_json(content: Any, kind: Any = Any, indent: int | None = None) -> bytes:
    """Return the content of a JSON file that :meth:`ModelFiles.parse` reads as a type."""
    return TypeAdapter(kind).dump_json(content, indent=indent) + b"\n"


@dataclass(frozen=True)
class ModelFiles:
    """The content of the files of a saved model by name, and their folder."""

    folder: Path
    content: Mapping[str, bytes]

    @classmethod
    def read(cls, folder: Path) -> "ModelFiles":
        """Read the files of a saved model, each once; :meth:`check` checks them."""
        paths = (folder / name for name in MODEL_FILES)
        return cls(folder, {path.name: path.read_bytes() for path in paths if path.is_file()})

    @classmethod
    def pack(
        cls, config: Mapping[str, Any], weights: Mapping[str, "Tensor"], others: Mapping[str, bytes]
    ) -> "ModelFiles":
        """Make the files of a model from its config, in JSON types, and its ``state_dict``."""
        import safetensors.torch  # with torch, which those who read other files do without

        plain = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
        content = {
            CONFIG_FILE: to_json(config, indent=2),
            WEIGHTS_FILE: safetensors.torch.save(plain, {"format": "pt"}),
            **others,
        }
        manifest = {name: _facts(data) for name, data in content.items()}
        return cls(Path(), {**content, MANIFEST_FILE: to_json(manifest, indent=2)})

    def write(self, folder: Path) -> None:
        """Write the files to a folder."""
        for name, content in self.content.items():
            write_file(folder / name, content)

    def save(self, folder: Path, card: str) -> None:
        """Write the files in place of another model in a folder, with a card if it has none.

        A new folder is written and renamed. Other files of the folder stay.
        """
        with atomic_folder(folder) as new:
            if folder.is_dir():

                def ignored(path: Any, _: Any) -> Sequence[str]:
                    return MODEL_FILES if Path(path) == folder else ()

                shutil.copytree(folder, new, symlinks=True, ignore=ignored, dirs_exist_ok=True)
            self.write(new)
            if not (new / "README.md").exists():
                write_file(new / "README.md", card.encode())

    def check(self) -> None:
        """Raise InputError with each file that is missing, damaged or of another model."""
        problems = [f"{name} {problem}" for name, problem in self.problems().items() if problem]
        if problems:
            raise InputError(
                f"{self.folder}: {', '.join(problems)}; copy the folder again from where the model "
                "was saved, or save the model again"
            )

    def problems(self) -> dict[str, str]:
        """Return for each file of the model what is wrong with it; "" = nothing."""
        try:
            listed = self.parse(MANIFEST_FILE, dict[str, dict[str, Any]])
        except InputError:
            return {MANIFEST_FILE: "is damaged"}
        if listed is None:
            return {MANIFEST_FILE: "is missing"}
        problems = dict.fromkeys([CONFIG_FILE, WEIGHTS_FILE, *self.content, *listed], "")
        problems.pop(MANIFEST_FILE)
        for name in problems:
            if name not in self.content:
                problems[name] = "is missing"
            elif name not in listed:
                problems[name] = f"is not listed in {MANIFEST_FILE}"
            elif listed[name] != _facts(self.content[name]):
                problems[name] = f"is not as {MANIFEST_FILE} lists it"
        return problems

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Let errors that the content of a file causes name it, unless they name another."""
        try:
            yield
        except Exception as error:
            reason = str(error)
            if isinstance(error, ValidationError):
                first = error.errors(include_url=False, include_input=False)[0]
                reason = f"{quoted('.'.join(map(str, first['loc'])))}: {first['msg']}"
            if not reason.startswith(str(self.folder)):
                reason = f"{self.folder / name}: {textwrap.shorten(reason, 400)}"
            raise InputError(reason) from error

    def parse(self, name: str, kind: type[Kind]) -> Kind | None:
        """Return the content of a JSON file as a type that pydantic knows; None without a file."""
        with self.reading(name):
            content = self.content.get(name)
            return None if content is None else TypeAdapter(kind).validate_json(content)

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the arrays of a safetensors file; none without a file."""
        with self.reading(name):
            return safetensors.numpy.load(self.content[name]) if name in self.content else {}

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration."""
        return self.parse(CONFIG_FILE, dict[str, Any]) or {}

    @property
    def versions(self) -> dict[str, str]:
        """Versions of molattn and RDKit in the training, if known."""
        return (self.parse(VERSIONS_FILE, dict[str, Any]) or {}).get("versions", {})

    @property
    def digest(self) -> str:
        """SHA-256 of configuration and weights, one after the other, in hexadecimal."""
        return sha256(self.content[CONFIG_FILE] + self.content[WEIGHTS_FILE]).hexdigest()

    def load_weights(self, model: "nn.Module") -> None:
        """Load the weights into a module; they must be finite, and of its names and shapes."""
        import safetensors.torch

        with self.reading(WEIGHTS_FILE):
            weights = safetensors.torch.load(self.content[WEIGHTS_FILE])
            for name, weight in weights.items():
                if weight.is_floating_point() and not bool(weight.isfinite().all()):
                    raise ValueError(f"weight {quoted(name)}: expected finite numbers")
            model.load_state_dict(weights)


def inputs_remark(versions: Mapping[str, str]) -> str:
    """Return a line if RDKit has another version than in a training, else ""."""
    trained = versions.get("rdkit")
    installed = version("rdkit")
    if trained in (None, installed):
        return ""
    inputs = "what the model reads of molecules, such as descriptors, may differ"
    return f"the model was trained with RDKit {trained}, and {installed} is installed: {inputs}"


def model_card(tasks_by_method: Mapping[str, Sequence[Task]], scores: Mapping[str, str]) -> str:
    """Return the predicted properties as Markdown, with scores of each task by its name."""
    calls = [f'    model.{method}(["CCO"])' for method, tasks in tasks_by_method.items() if tasks]
    lines = []
    for method, tasks in tasks_by_method.items():
        sites = method.removeprefix("predict").replace("_", " of ")
        for task in tasks:
            facts = task.unit, f"{task.kind}{sites}", ", ".join(task.classes), scores.get(task.name)
            text = f"`{task.name}`: {'; '.join(fact for fact in facts if fact)}"
            lines.append(f"- {' '.join(text.split())}")
    return MODEL_CARD.format(calls="\n".join(calls), properties="\n".join(lines))


def _facts(content: bytes) -> dict[str, Any]:
    return {"size": len(content), "sha256": sha256(content).hexdigest()}
