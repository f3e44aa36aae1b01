"""MolAttn: a molecular property predictor."""

import copy
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rdkit import Chem
from torch import nn
from torch.overrides import TorchFunctionMode

from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.chem.parse import Molecule
from molattn.errors import InputError, SmilesError
from molattn.model import artefact
from molattn.model.artefact import ModelFiles, find_model, to_json
from molattn.model.config import MolAttnConfig
from molattn.model.gaussian_process import GaussianProcessHead
from molattn.model.predictor import PredictionColumns, Predictor
from molattn.model.readable import headings
from molattn.model.training_set import Endpoint, LabelDistribution, TrainingMolecules, TrainingSet
from molattn.model.uncertainty import Calibration, Part, Uncertainty
from molattn.utils.files import atomic_folder, write_file
from molattn.utils.registry import IMPORTED

if TYPE_CHECKING:
    import pandas as pd

_MOST_NUMBERS = 2  # of a network, for each byte of its weights
_SAME_SCALING = 1e-6  # largest difference, relative to the scale: rounding in single precision


class MolAttn(Predictor):
    """Attention over all atom pairs of a molecule, and a prediction of its properties.

    A trained model has one network (``nets``); :meth:`ensemble` joins models into one. Labels are
    transformed (``config.target_transforms``), then standardized. The prediction of a transformed
    target estimates the median of its distribution rather than the mean.

    Wherever a method takes SMILES, it takes RDKit molecules too. They must be sanitized and are not
    changed; explicit hydrogen atoms and atom-map numbers are ignored, as in SMILES.

    Encoder, readout and head may be modules of your own, in any combination:

    - ``encoder(x, edge_index, edge_attr=...)`` takes atoms ``[N, config.network.width]``, edges
      ``int64 [2, E]`` and their features ``[E, config.network.edge_width]``, and returns atoms
      ``[N, out_channels]``. The attribute ``out_channels`` is the width by default. With the
      attribute ``complete_graphs = True`` it is called as ``encoder(x, graphs, edges)``, with the
      padded rows of :class:`molattn.graph.CompleteGraphs`.
    - ``readout(x, index, num_graphs)`` takes atoms ``[N, out_channels of the encoder]`` and the
      molecule of each, ``int64 [N]``, ascending, and returns ``[num_graphs, out_channels]``;
      ``out_channels`` is an attribute. Or a PyG ``Aggregation``.
    - ``head(molecules)`` takes ``[n, out_channels of the readout]``, twice as wide with a second
      molecule, and returns ``[n, len(config.output_names)]`` in scaled units and logits. It is
      called as ``head(molecules, features)`` where the config has extra features,
      ``[n, config.num_numbers]``.

    Such a model is used like any other. To load a saved one, pass the modules again to
    :meth:`from_pretrained`; to train one, see ``make_model`` of :func:`molattn.train`.

    Args:
        config: All options.
        encoder: Your own encoder module; by default the one that ``config.network`` describes.
        readout: Your own readout.
        head: Your own head.

    Example:
        >>> model = MolAttn(MolAttnConfig(tasks=("logS",)))
        >>> model.predict(["CCO", "c1ccccc1"]).shape
        (2, 1)
    """

    versions: Mapping[str, str] = MappingProxyType({})  # of molattn and RDKit in the training

    def predict_frame(
        self, smiles: Sequence[Molecule], level: float = 0.9, batch_size: int = 256, **inputs: Any
    ) -> "pd.DataFrame":
        """Predict molecules as a table for people, as ``molattn predict`` writes to Excel.

        Args:
            smiles: The n molecules.
            level: Nominal coverage of the intervals.
            batch_size: Molecules in a batch.
            inputs: ``partners`` and ``features``, as of :meth:`predict`.

        Returns:
            A row for each molecule, with the SMILES as index. Each property has a column of its
            name and unit, then the ends of its interval, or class and probability, and its
            confidence and expected error. A molecule that cannot be predicted has missing values
            and, in the last column, the ``error``.
        """
        import pandas as pd

        partners = inputs.pop("partners", None)
        read = [*self.reader(partners, numbers=True, fingerprint=True)(smiles, partners)]
        errors = [str(one) if isinstance(one, SmilesError) else "" for one in read]
        good = [row for row, error in enumerate(errors) if not error]
        known: list[Any] = [read[row] for row in good]
        numbers = {name: np.asarray(one)[good] for name, one in inputs.items() if one is not None}
        outputs = self.predict_outputs(known, batch_size, **numbers)
        prediction = self.prediction(outputs, [one.fingerprint for one in known], level)
        columns = PredictionColumns(self)
        rows = [columns.cells(prediction, row) for row in range(len(good))]
        found = headings(self)
        titles = [found[name].title for name in columns.columns]
        frame = pd.DataFrame(rows, good, titles).reindex(range(len(read))).assign(error=errors)
        texts = [Chem.MolToSmiles(one) if isinstance(one, Chem.Mol) else one for one in smiles]
        return frame.set_index(pd.Index(texts, name="smiles"))

    def __repr__(self) -> str:
        return f"<MolAttn of {self.config!r}; its modules: .nets>"

    @classmethod
    def ensemble(cls, models: Sequence["MolAttn"]) -> "MolAttn":
        """Join trained models into one that averages their predictions, in evaluation mode.

        Weights are copied. The models have the same scaling and config, except for the number of
        members, such as those trained on the same rows with different seeds. It has no Gaussian
        process, no calibration and no endpoints, which are those of one model, so train the models
        with ``predictor="network"``.

        Raises:
            InputError: A model that differs from the first, or has no trained network.
        """
        if not models:
            raise InputError("ensemble: expected at least one model")
        first = models[0]
        for number, model in enumerate(models, start=1):
            if model.has_untrained_head:
                raise InputError(
                    f"ensemble: model {number} predicts by its Gaussian process alone, which "
                    "an ensemble does not have"
                )
            # Kernels are of the Gaussian process.
            others = replace(model.config, kernels=first.config.kernels)
            difference = first.config.difference(others) or cls._scaling_difference(first, model)
            if difference:
                raise InputError(
                    f"ensemble: model {number} differs from model 1 in {difference}; expected "
                    "members of the same tasks, network, featurizer, features and scaling"
                )
        nets = [copy.deepcopy(net).to(first.device) for model in models for net in model.nets]
        joined = copy.deepcopy(first)
        joined.config = replace(joined.config, members=len(nets), kernels=())
        joined.uncertainty = None  # it describes the errors of one member
        joined.gaussian_process = None  # its kernel reads the embedding of one member
        joined.training_set = None  # the others may have other rows
        joined.endpoints = {}
        joined.nets = nn.ModuleList(nets)
        return joined.eval()

    def _scaling_difference(self, other: "MolAttn") -> str:
        """Name the first difference between the scaling of two models; "" = none."""
        for what in ("target", "feature"):
            scale = self.get_buffer(f"{what}_scale").cpu()
            for name in (f"{what}_mean", f"{what}_scale"):
                # A mean may be much larger than the scale.
                change = self.get_buffer(name).cpu() - other.get_buffer(name).cpu()
                if bool((change.abs() > _SAME_SCALING * scale).any()):
                    return f"the {what} scaling"
        return ""

    def inputs_remark(self) -> str:
        """Return a line if RDKit has another version than in the training, else ""."""
        return artefact.inputs_remark(self.versions)

    # Saving and loading.

    def to_files(self) -> ModelFiles:
        """Return the files of the model."""
        files, names = {}, self.config.targets
        if self.uncertainty is not None:
            calibration = dict(zip(names, self.uncertainty.calibration.parts, strict=True))
            files[artefact.CALIBRATION_FILE] = to_json(calibration, dict[str, Part])
            files[artefact.FINGERPRINTS_FILE] = self.uncertainty.fingerprints.to_bytes()
        if self.gaussian_process is not None:
            files[artefact.GAUSSIAN_PROCESS_FILE] = self.gaussian_process.to_bytes()
        if self.training_set is not None:
            labels = dict(zip(names, self.training_set.labels, strict=True))
            files[artefact.LABELS_FILE] = to_json(labels, dict[str, LabelDistribution])
            if self.training_set.molecules is not None:
                files[artefact.MOLECULES_FILE] = self.training_set.molecules.to_bytes()
        if self.endpoints:
            files[artefact.ENDPOINTS_FILE] = to_json(
                dict(self.endpoints), dict[str, Endpoint], indent=1
            )
        if self.versions:
            files[artefact.VERSIONS_FILE] = to_json({"versions": dict(self.versions)})
        return ModelFiles.pack(self.config.to_dict(), self.state_dict(), files)

    def save_pretrained(
        self, folder: str | Path, *, scores: Mapping[str, str] | None = None
    ) -> None:
        """Write the model to a folder, in place of another model in it; other files stay.

        A new folder is written and renamed: if this is interrupted, the previous model stays. A
        ``README.md`` lists the predicted properties, with ``scores`` of each task by its name.
        """
        folder = Path(folder)
        with atomic_folder(folder) as part:
            if folder.is_dir():
                names = artefact.MODEL_FILES

                def ours(path: Any, _: Any) -> Sequence[str]:
                    return names if Path(path) == folder else ()

                shutil.copytree(folder, part, symlinks=True, ignore=ours, dirs_exist_ok=True)
            self.to_files().write(part)
            if not (part / "README.md").exists():
                write_file(part / "README.md", self.card(scores or {}).encode())

    def card(self, scores: Mapping[str, str]) -> str:
        """Return the predicted properties as Markdown, with scores of each task by its name."""
        lines = []
        for task in self.config.tasks:
            facts = (task.unit, task.kind, ", ".join(task.classes), scores.get(task.name))
            text = f"`{task.name}`: {'; '.join(fact for fact in facts if fact)}"
            lines.append(f"- {' '.join(text.split())}")
        return artefact.MODEL_CARD.format(properties="\n".join(lines))

    @classmethod
    def from_pretrained(cls, name: str | Path, **parts: nn.Module | None) -> "MolAttn":
        """Load a packaged model, or one from a folder.

        Args:
            name: The folder that :meth:`save_pretrained` wrote, a run's folder, or the name of a
                model of the package.
            parts: Your own ``encoder``, ``readout`` and ``head``, as the model was saved with;
                their weights are replaced.

        Raises:
            InputError: No such model, a missing or damaged file, or other parts.
        """
        files = ModelFiles.read(find_model(name))
        files.check()
        return cls.from_files(files, **parts)

    @classmethod
    def from_files(cls, files: ModelFiles, **parts: nn.Module | None) -> "MolAttn":
        """Make a model of its files, which are not checked; see :meth:`from_pretrained`."""
        if missing := [name for name in files.config.get("imports", ()) if name not in IMPORTED]:
            what = f"{', '.join(missing)}, which registers parts of {files.folder}"
            raise InputError(f"expected {what}, got none", option="import")
        with files.reading(artefact.CONFIG_FILE):
            config = MolAttnConfig.from_dict(files.config)
            with _Undrawn(_MOST_NUMBERS * len(files.content[artefact.WEIGHTS_FILE])):
                model = cls(config, **parts)
            if model.config != config:
                raise InputError("got custom parts, but the model was saved without any")
            files.load_weights(model)
            if calibration := files.parse(artefact.CALIBRATION_FILE, dict[str, Part]):
                found = tuple(calibration[name] for name in config.targets)
                with files.reading(artefact.FINGERPRINTS_FILE):
                    arrays = files.arrays(artefact.FINGERPRINTS_FILE)
                    known = FingerprintIndex.from_arrays(arrays)
                model.uncertainty = Uncertainty(Calibration(config.tasks, found), known)
            if labels := files.parse(artefact.LABELS_FILE, dict[str, LabelDistribution]):
                with files.reading(artefact.MOLECULES_FILE):
                    arrays = files.arrays(artefact.MOLECULES_FILE)
                    molecules = TrainingMolecules.from_arrays(arrays) if arrays else None
                ordered = tuple(labels[name] for name in config.targets)
                model.training_set = TrainingSet(ordered, molecules)
            if arrays := files.arrays(artefact.GAUSSIAN_PROCESS_FILE):
                with files.reading(artefact.GAUSSIAN_PROCESS_FILE):
                    model.gaussian_process = GaussianProcessHead.from_arrays(arrays, config)
            model.endpoints = files.parse(artefact.ENDPOINTS_FILE, dict[str, Endpoint]) or {}
            model.versions = files.versions
        return model.eval()


class _Undrawn(TorchFunctionMode):
    """Makes modules whose weights are loaded next; to draw them would move global generators.

    A configuration of far more numbers than the file of weights has is refused before they take
    memory.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = most

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        name, kwargs = getattr(function, "__name__", ""), kwargs or {}
        if name.endswith(("uniform_", "normal_")):
            return nn.init.zeros_(args[0] if args else kwargs["tensor"])
        result = (torch.zeros if name in ("rand", "randn") else function)(*args, **kwargs)
        if name in ("empty", "ones", "rand", "randn", "zeros"):
            self._left -= result.numel()
            if self._left < 0:
                message = f"got a larger network than that of {artefact.WEIGHTS_FILE}"
                raise ValueError(f"{message}, expected the configuration it was saved with")
        return result
