"""Saved models: a folder of safetensors and JSON files, without pickles."""

import json
import re
import shutil
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, Union

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from torch import Tensor, nn

from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.errors import InputError, quoted
from molattn.utils.files import UNFINISHED, atomic_folder, parse_json, write_file

__all__ = [
    "CALIBRATION_FILE",
    "CONFIG_FILE",
    "ENDPOINTS_FILE",
    "FINGERPRINTS_FILE",
    "GAUSSIAN_PROCESS_FILE",
    "INPUTS_FILE",
    "LABELS_FILE",
    "MANIFEST_FILE",
    "MODEL_CARD",
    "MOLECULES_FILE",
    "ModelFiles",
    "PACKAGED",
    "WEIGHTS_FILE",
    "find_local_model",
    "find_model",
    "finish_saving",
    "is_packaged",
    "load_arrays",
]

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CALIBRATION_FILE = "calibration.json"
FINGERPRINTS_FILE = "training_fingerprints.safetensors"
GAUSSIAN_PROCESS_FILE = "gaussian_process.safetensors"
LABELS_FILE = "training_labels.json"
MOLECULES_FILE = "training_molecules.safetensors"
ENDPOINTS_FILE = "endpoints.json"
INPUTS_FILE = "reference_inputs.json"
MANIFEST_FILE = "manifest.json"
_SAVING = ".saving"
_FILES = (
    CONFIG_FILE,
    WEIGHTS_FILE,
    CALIBRATION_FILE,
    FINGERPRINTS_FILE,
    GAUSSIAN_PROCESS_FILE,
    LABELS_FILE,
    MOLECULES_FILE,
    ENDPOINTS_FILE,
    INPUTS_FILE,
)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

MODEL_CARD = """---
{{ card_data }}
---
A molecular property predictor trained with molattn.

    from molattn import MolAttn
    model = MolAttn.from_pretrained("FOLDER")
    model.predict(["CCO"])

Predicted properties:

{{ properties }}

| file | content |
| --- | --- |
| `config.json` | options of the network, input features and predicted properties |
| `model.safetensors` | weights, and the scaling of targets and features |
| `calibration.json` | calibration of prediction intervals and probabilities |
| `training_fingerprints.safetensors` | fingerprints of the training molecules, and their tasks |
| `gaussian_process.safetensors` | counted substructures of training molecules, and their weights |
| `training_labels.json` | percentiles of the training labels, or labels of each class |
| `training_molecules.safetensors` | SMILES and labels of the training molecules, if they are kept |
| `endpoints.json` | what the predicted properties mean, if it was given |
| `reference_inputs.json` | versions of RDKit and molattn, and inputs of some known molecules |
| `manifest.json` | size and SHA-256 of each of these files, checked when the model is loaded |
"""
"""Template of the README of a saved model."""

PACKAGED = Path(__file__).parent / "weights"
"""Models of the package, each in a folder of its name."""

Kind = TypeVar("Kind")

_RUN_MODEL = "model"
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def find_model(name: Union[str, Path], **hub_options: Any) -> Path:
    """Return the folder of a saved model.

    Args:
        name: The name of a model of the package, such as ``base``; or the folder of a saved model,
            the folder of the run that trained it, or a file in either; or, if there is no such
            folder, the name ``owner/model`` of a model on the Hugging Face Hub, which is downloaded
            once.
        hub_options: Passed to ``huggingface_hub.snapshot_download`` (``revision``, ...).

    Raises:
        InputError: No such model, folder or hub name, or the folder of a cross-validation.
    """
    if is_packaged(name):
        return PACKAGED / name
    path = Path(name)
    is_name = not (path.exists() or _unfinished(path)) and isinstance(name, str)
    if is_name and _HUB_NAME.fullmatch(str(name)):
        return _download(str(name), hub_options)
    return find_local_model(path)


def find_local_model(path: Union[str, Path]) -> Path:
    """Return the folder of a saved model or of a model of the package; the Hub is not searched.

    Raises:
        InputError: No such model or folder, or the folder of a cross-validation.
    """
    name, path = str(path), Path(path)
    if not path.exists() and name in _packaged():
        return PACKAGED / name
    folder = path.parent if path.is_file() else path
    for found in (folder, folder / _RUN_MODEL):
        if (found / CONFIG_FILE).is_file():
            return found
    expected = "expected the folder of a saved model"
    if folds := sorted(folder.glob(f"*fold_*/{_RUN_MODEL}")):
        raise InputError(f"{name}: a cross-validation; {expected}, such as {folds[0].parent}")
    if path.is_file():
        raise InputError(f"{name}: a file, {expected}")
    if unfinished := _unfinished(folder):
        raise InputError(
            f"{name}: no such folder; {unfinished} is a run that was interrupted or is in progress "
            f"(to resume: molattn train or molattn pretrain with --resume {name})"
        )
    if not folder.exists():
        packaged = ", ".join(_packaged()) or "there is none"
        raise InputError(f"{name}: no such folder; {expected}, or a packaged model: {packaged}")
    return folder


def _unfinished(folder: Path) -> Path | None:
    """Return the folder of the unfinished run of a name, if there is one."""
    path = folder.with_name(folder.name + UNFINISHED) if folder.name else folder
    is_fold = folder.name.rpartition("fold_")[2].isdigit()  # which is resumed with the others
    return path if (path / "config.yaml").is_file() and not is_fold else None


def is_packaged(name: Union[str, Path]) -> bool:
    """Return whether the package has a model of this name; a ``Path`` is never a name."""
    return isinstance(name, str) and name in _packaged()


def _packaged() -> list[str]:
    return sorted(path.parent.name for path in PACKAGED.glob(f"*/{CONFIG_FILE}"))


def _download(name: str, options: dict[str, Any]) -> Path:
    try:
        return Path(snapshot_download(name, allow_patterns=[MANIFEST_FILE, *_FILES], **options))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(
            f"{name}: no such folder, and no download from the Hugging Face Hub: {reason}"
        ) from None


@dataclass(frozen=True)
class ModelFiles:
    """The files of a saved model.

    Args:
        folder: Their folder.
        content: The content of each file by its name, without the manifest.
        manifest: The content of the manifest; None = it is missing.
    """

    folder: Path
    content: Mapping[str, bytes]
    manifest: Union[bytes, None]

    @classmethod
    def read(cls, folder: Path) -> "ModelFiles":
        """Read the files of a saved model, each once; :meth:`check` checks them.

        Between :meth:`stage` and :func:`finish_saving` they are the staged ones.

        Raises:
            InputError: The folder or a file cannot be read.
        """
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder; expected the folder of a saved model")
        staged = (folder / _SAVING / MANIFEST_FILE).is_file()
        found, place = {}, folder / _SAVING if staged else folder
        for name in (MANIFEST_FILE, *_FILES):
            try:
                found[name] = (place / name).read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise InputError(
                    f"{folder / name}: cannot be read: {error.strerror or error}"
                ) from error
        manifest = found.pop(MANIFEST_FILE, None)
        return cls(folder, found, manifest)

    @classmethod
    def pack(
        cls,
        folder: Path,
        config: Mapping[str, Any],
        weights: Mapping[str, Tensor],
        others: Mapping[str, bytes],
    ) -> "ModelFiles":
        """Make the files of a model from its config, in JSON types, and its ``state_dict``.

        Args:
            folder: Where they will be.
            config: The configuration.
            weights: The weights.
            others: The content of other files by name.
        """
        plain = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
        content = {
            CONFIG_FILE: _json(config),
            WEIGHTS_FILE: safetensors.torch.save(plain, {"format": "pt"}),
            **others,
        }
        manifest = {name: _entry(some) for name, some in content.items()}
        return cls(folder, content, _json(manifest))

    def stage(self) -> None:
        """Write the files to a folder in theirs, where they are read until :func:`finish_saving`.

        At any moment, the folder thus holds the previous model or this one.
        """
        if (self.folder / _SAVING / MANIFEST_FILE).is_file():  # of a process that was killed
            finish_saving(self.folder)
        with atomic_folder(self.folder / _SAVING) as part:
            self.write(part)

    def write(self, folder: Path) -> None:
        """Write the files to a folder, and remove those of any other model."""
        files = {**self.content, MANIFEST_FILE: self.manifest}
        for name in (*_FILES, MANIFEST_FILE):
            if (content := files.get(name)) is None:
                (folder / name).unlink(missing_ok=True)
            else:
                write_file(folder / name, content)

    def check(self) -> None:
        """Check that all files are there, and are those that the manifest lists.

        Raises:
            InputError: A file that is missing, damaged or of another model; names each.
        """
        if self.manifest is None and CONFIG_FILE not in self.content:
            raise InputError(
                f"{self.folder}: has no {CONFIG_FILE}; expected the folder of a saved model"
            )
        problems = [f"{name} {problem}" for name, problem in self.problems().items() if problem]
        if problems:
            raise InputError(
                f"{self.folder}: {', '.join(problems)}; copy the folder again from where the model "
                "was saved, or save the model again"
            )

    def problems(self) -> dict[str, str]:
        """Return for each file of the model what is wrong with it; "" = nothing."""
        if self.manifest is None:
            return {MANIFEST_FILE: "is missing"}
        try:
            listed = parse_json(self.manifest, self.folder / MANIFEST_FILE)
        except InputError:
            return {MANIFEST_FILE: "is damaged"}
        found = {}
        for name in _FILES:
            if name not in self.content:
                if name in listed or name in (CONFIG_FILE, WEIGHTS_FILE):
                    found[name] = "is missing"
            elif name not in listed:
                found[name] = f"is not listed in {MANIFEST_FILE}"
            elif listed[name] != _entry(self.content[name]):
                found[name] = f"is not as {MANIFEST_FILE} lists it"
            else:
                found[name] = ""
        if others := sorted(listed.keys() - {*_FILES}):
            found[MANIFEST_FILE] = f"lists {quoted(others[0])}, which is no file of a model"
        return found

    def json(self, name: str) -> dict[str, Any]:
        """Return the content of a JSON file.

        Raises:
            InputError: It is not a JSON object.
        """
        return parse_json(self.content[name], self.folder / name)

    def parse(self, name: str, kind: type[Kind]) -> Kind:
        """Return the content of a JSON file as a type that pydantic knows.

        Raises:
            InputError: It is not JSON, or not of this type.
        """
        try:
            return TypeAdapter(kind).validate_json(self.content[name], strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = quoted(".".join(map(str, first["loc"])))
            raise InputError(f"{self.folder / name}: {where}: {first['msg']}") from None

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration."""
        return self.json(CONFIG_FILE)

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The weights by name."""
        try:
            return safetensors.torch.load(self.content[WEIGHTS_FILE])
        except (SafetensorError, OSError) as error:
            raise InputError(
                f"{self.folder / WEIGHTS_FILE}: not a readable safetensors file: {error}"
            ) from error

    @property
    def fingerprints(self) -> FingerprintIndex:
        """The fingerprints of the training molecules."""
        path = self.folder / FINGERPRINTS_FILE
        return FingerprintIndex.from_bytes(self.content[FINGERPRINTS_FILE], path)

    @property
    def digest(self) -> str:
        """SHA-256 of configuration and weights, one after the other, in hexadecimal."""
        return sha256(self.content[CONFIG_FILE] + self.content[WEIGHTS_FILE]).hexdigest()

    def load_weights(self, model: nn.Module) -> None:
        """Load the weights into a module.

        Raises:
            InputError: Weights that are not finite, or of other names or shapes.
        """
        path = self.folder / WEIGHTS_FILE
        for name, weight in self.weights.items():
            if weight.is_floating_point() and not (
                weight.dtype in _FLOATS and bool(weight.isfinite().all())
            ):
                raise InputError(f"{path}: weight {quoted(name)}: expected finite numbers")
        try:
            model.load_state_dict(self.weights)
        except RuntimeError as error:
            reason = textwrap.shorten(str(error), 400)
            raise InputError(f"{path}: not of the {CONFIG_FILE} beside it: {reason}") from None


def load_arrays(
    content: bytes, path: Path, schema: Mapping[str, tuple[type, tuple[Union[int, str], ...]]]
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a safetensors file.

    Args:
        content: The content of the file.
        path: The file, for error messages.
        schema: Type and shape of each array; a size that is a name is any, the same in all of them.

    Raises:
        InputError: No such file, or an array is missing, unknown, or of another type or shape.
    """
    try:
        arrays = safetensors.numpy.load(content)
    except (SafetensorError, KeyError) as error:  # the latter of types that NumPy does not have
        raise InputError(f"{path}: not a readable safetensors file: {error}") from error
    for name in sorted(arrays.keys() ^ schema.keys()):
        state = "unknown" if name in arrays else "missing"
        raise InputError(f"{path}: {state} array {quoted(name)}")
    sizes: dict[str, int] = {}
    for name, (kind, shape) in schema.items():
        found = arrays[name]
        expected = [
            sizes.setdefault(size, got) if isinstance(size, str) else size
            for size, got in zip(shape, found.shape, strict=False)
        ]
        if found.dtype != kind or found.ndim != len(shape) or [*found.shape] != expected:
            raise InputError(
                f"{path}: array {quoted(name)}: got {found.dtype} {[*found.shape]}, expected "
                f"{np.dtype(kind)} {[*shape]}"
            )
    return arrays


def finish_saving(folder: Path) -> None:
    """Finish what :meth:`ModelFiles.stage` began; other files in the folder stay."""
    ModelFiles.read(folder).write(folder)
    (folder / _SAVING / MANIFEST_FILE).unlink()
    shutil.rmtree(folder / _SAVING)


def _entry(content: bytes) -> dict[str, Any]:
    return {"size": len(content), "sha256": sha256(content).hexdigest()}


def _json(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode()
