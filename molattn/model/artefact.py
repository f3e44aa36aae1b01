"""Saved models: a folder of safetensors and JSON files, without pickles."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union

import safetensors.torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from safetensors import SafetensorError
from torch import Tensor

from molattn.errors import InputError
from molattn.utils.files import read_json, write_file

__all__ = [
    "CALIBRATION_FILE",
    "CONFIG_FILE",
    "FINGERPRINTS_FILE",
    "MODEL_CARD",
    "PACKAGED",
    "WEIGHTS_FILE",
    "find_model",
    "is_packaged",
    "model_digest",
    "read_config",
    "read_weights",
    "write_artefact",
]

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CALIBRATION_FILE = "calibration.json"
FINGERPRINTS_FILE = "training_fingerprints.safetensors"

MODEL_CARD = """---
{{ card_data }}
---
A molecular property predictor trained with molattn.

    from molattn import MolAttn
    model = MolAttn.from_pretrained("FOLDER")
    model.predict(["CCO"])

| file | content |
| --- | --- |
| `config.json` | options of the network, input features and predicted properties |
| `model.safetensors` | weights, and the scaling of targets and features |
| `calibration.json` | calibration of prediction intervals and probabilities |
| `training_fingerprints.safetensors` | fingerprints of the training molecules |
"""
"""Template of the README of a saved model."""

PACKAGED = Path(__file__).parent / "weights"
"""Models of the package, each in a folder of its name."""

_RUN_MODEL = "model"
_PLAIN_NAME = re.compile(r"[\w.-]*\w[\w.-]*")
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
    folder = path.parent if path.is_file() else path
    if not folder.exists() and isinstance(name, str) and _PLAIN_NAME.fullmatch(name):
        raise InputError(
            f"{name}: no such folder, and no packaged model of this name; expected the folder of "
            f"a saved model, or a packaged model: {', '.join(_packaged()) or 'there is none'}"
        )
    if not folder.is_dir() and _HUB_NAME.fullmatch(str(name)):
        return _download(str(name), hub_options)
    if (folder / CONFIG_FILE).is_file():
        return folder
    if (folder / _RUN_MODEL).is_dir():
        return folder / _RUN_MODEL
    found = folder.glob("*fold_*")
    if folds := sorted(fold.name for fold in found if (fold / _RUN_MODEL).is_dir()):
        raise InputError(
            f"{name}: a cross-validation of {len(folds)} models; expected the folder of one of "
            f"them, such as {folder / folds[0]}"
        )
    return folder


def is_packaged(name: Union[str, Path]) -> bool:
    """Return whether the package has a model of this name; a ``Path`` is never a name."""
    return isinstance(name, str) and name in _packaged()


def _packaged() -> list[str]:
    return sorted(path.parent.name for path in PACKAGED.glob(f"*/{CONFIG_FILE}"))


def _download(name: str, options: dict[str, Any]) -> Path:
    wanted = [CONFIG_FILE, WEIGHTS_FILE, CALIBRATION_FILE, FINGERPRINTS_FILE]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted, **options))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(
            f"{name}: no such folder, and no download from the Hugging Face Hub: {reason}"
        ) from None


def write_artefact(folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Write a model's config, in JSON types, and ``state_dict``; make the folder if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
    write_file(folder / WEIGHTS_FILE, safetensors.torch.save(plain, {"format": "pt"}))
    text = json.dumps(config, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_file(folder / CONFIG_FILE, text.encode())


def read_config(folder: Path) -> dict[str, Any]:
    """Read a model's config.

    Raises:
        InputError: The folder or file is missing, or is not a JSON object.
    """
    return read_json(_existing(folder, CONFIG_FILE))


def read_weights(folder: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Read a model's weights.

    Raises:
        InputError: A file that is missing or damaged, or weights that are not finite or have other
            names, shapes or number types than the ``state_dict`` that they are expected to fit.
    """
    path = _existing(folder, WEIGHTS_FILE)
    try:
        weights = safetensors.torch.load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: not a readable safetensors file: {error}") from error
    for name in sorted(weights.keys() ^ expected.keys()):
        raise InputError(
            f"{path}: {'unexpected' if name in weights else 'missing'} weight {name!r}; "
            f"does it belong to the {CONFIG_FILE} beside it?"
        )
    for name, tensor in expected.items():
        got = weights[name]
        if got.shape != tensor.shape:
            raise InputError(
                f"{path}: weight {name!r} has shape {list(got.shape)}, "
                f"expected {list(tensor.shape)}"
            )
        if got.is_floating_point() != tensor.is_floating_point():
            raise InputError(f"{path}: weight {name!r} has {got.dtype}, expected {tensor.dtype}")
        if not bool(got.isfinite().all()):
            raise InputError(f"{path}: weight {name!r} has values that are not finite")
    return weights


def model_digest(folder: Path) -> str:
    """Return the SHA-256 of a model's two files, one after the other, in hexadecimal.

    Raises:
        InputError: No such file.
    """
    digest = hashlib.sha256()
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        with open(_existing(folder, name), "rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    return digest.hexdigest()


def _existing(folder: Path, name: str) -> Path:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; expected the folder of a saved model")
    path = folder / name
    if not path.is_file():
        raise InputError(f"{folder}: has no {name}; expected the folder of a saved model")
    return path
