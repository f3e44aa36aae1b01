"""MolAttn: a molecular property predictor."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from molattn.chem.fingerprints import Fingerprint
from molattn.chem.parse import Molecule
from molattn.config import Freeze
from molattn.errors import InputError, SmilesError, check_one_of
from molattn.graph import MoleculeBatch
from molattn.model import artefact
from molattn.model.artefact import ModelFiles, Update, find_model, to_json
from molattn.model.config import MolAttnConfig
from molattn.model.difference import Difference, Side, differences
from molattn.model.gaussian_process import GaussianProcessHead, Neighbor
from molattn.model.network import Network, Undrawn
from molattn.model.networks import Array, Graphs, Networks, Records
from molattn.model.outputs import mean_of_members
from molattn.model.predictor import Predictor
from molattn.model.readable import prediction_frame
from molattn.model.scaling import Scaling, number_type
from molattn.model.sites import SiteCalibration, SitePrediction, predict_sites
from molattn.model.target_transform import TargetTransform
from molattn.model.training_set import Endpoint, Label, TrainingMolecule, TrainingSet
from molattn.model.uncertainty import Uncertainty
from molattn.record import MoleculeRecord
from molattn.task import Level
from molattn.utils.registry import IMPORTED

if TYPE_CHECKING:
    import pandas as pd

_MOST_NUMBERS = 2  # of a network, for each byte of its weights


class MolAttn(nn.Module):
    """Attention over all atom pairs of a molecule, and a prediction of its properties.

    It has these parts: the networks (a trained model has one, :meth:`ensemble` joins models into
    one) and the scaling of labels and features, whose weights and buffers it registers; a Gaussian
    process, a calibration and a training set, each None where there is none. :attr:`predictor`
    combines them.

    Labels are transformed (``config.target_transforms``), then standardized. The prediction of a
    transformed target estimates the median of its distribution rather than the mean.

    Methods take n SMILES or RDKit molecules, and with them: ``batch_size``, molecules in a batch,
    fewer where they are large; ``partners``, the second molecule of each, such as its solvent,
    where the model takes one; and ``features``, extra features ``[n, len(config.features)]``, if
    the config names any.

    They raise ``SmilesError`` for an invalid molecule, with its position and the reason;
    ``TypeError`` for a molecule in place of a list; and ``ValueError`` for partners or features
    that are missing, not used by the model, of another shape or not finite.

    RDKit molecules must be sanitized and are not changed; explicit hydrogen atoms and atom-map
    numbers are ignored, as in SMILES.

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

    target_mean: Tensor
    target_scale: Tensor
    feature_mean: Tensor
    feature_scale: Tensor

    gaussian_process: GaussianProcessHead | None = None  # combined with the networks
    uncertainty: Uncertainty | None = None  # calibration and training molecules
    training_set: TrainingSet | None = None  # distribution of the training labels, molecules
    endpoints: Mapping[str, Endpoint] = MappingProxyType({})  # what tasks mean
    versions: Mapping[str, str] = MappingProxyType({})  # of molattn and RDKit in the training
    site_calibration: SiteCalibration | None = None  # of predictions of atoms and bonds
    updates: tuple[Update, ...] = ()  # tables of measurements that it learned from afterwards

    def __init__(
        self,
        config: MolAttnConfig,
        *,
        encoder: nn.Module | None = None,
        readout: nn.Module | None = None,
        head: nn.Module | None = None,
    ) -> None:
        super().__init__()
        modules = {"encoder": encoder, "readout": readout, "head": head}
        modules = {name: module for name, module in modules.items() if module is not None}
        classes = {name: type(module).__name__ for name, module in modules.items()}
        if config.custom_parts and classes != dict(config.custom_parts):
            raise ValueError(
                f"custom parts: got {classes or 'none'}, expected {dict(config.custom_parts)}; "
                "pass them to MolAttn.from_pretrained or MolAttn"
            )
        self.config = replace(config, custom_parts=tuple(classes.items()))
        # Each member has weights of its own; the first has the very modules of the arguments.
        self.nets = nn.ModuleList(
            Network(self.config, **(copy.deepcopy(modules) if member else modules))
            for member in range(config.members)
        )
        for name, size in (("target", len(config.tasks)), ("feature", config.num_numbers)):
            self.register_buffer(f"{name}_mean", torch.zeros(size, dtype=number_type()))
            self.register_buffer(f"{name}_scale", torch.ones(size, dtype=number_type()))

    def __repr__(self) -> str:
        return f"<MolAttn of {self.config!r}; its modules: .nets>"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Apply ``half()``, ``to(...)`` and the like; means and scales keep their precision."""
        scaling = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        for name, before in scaling.items():
            setattr(self, name, before.to(getattr(self, name).device))
        return self

    # Parts. Those of weights are made when they are needed: moving a model replaces its buffers.

    @property
    def scaling(self) -> Scaling:
        """The scaling of labels and extra features."""
        targets = self.target_mean, self.target_scale
        dtype = next(self.parameters()).dtype
        return Scaling(self.config, *targets, self.feature_mean, self.feature_scale, dtype)

    @property
    def networks(self) -> Networks:
        """The networks."""
        return Networks(self.config, self.nets, self.scaling)

    @property
    def predictor(self) -> Predictor:
        """What combines the networks, the Gaussian process and the calibration."""
        return Predictor(self.networks, self.gaussian_process, self.uncertainty, self.training_set)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device

    def set_target_scaling(
        self, mean: ArrayLike, scale: ArrayLike, transforms: Sequence[TargetTransform] = ()
    ) -> None:
        """Set how labels are scaled: the transform of each task, then mean and scale.

        Means and standard deviations ``[num_tasks]`` are those of transformed training labels, and
        0 and 1 of classes. This removes the calibration and the Gaussian process.
        """
        config = replace(self.config, target_transforms=tuple(transforms))
        self.scaling.set_targets(mean, scale)
        self.config = config
        self.uncertainty = None
        self.gaussian_process = None

    def set_feature_scaling(self, mean: ArrayLike, scale: ArrayLike) -> None:
        """Set mean and standard deviation of extra features, ``[config.num_numbers]`` each."""
        self.scaling.set_features(mean, scale)

    def check_predicts_molecules(self) -> None:
        """Raise an InputError if the model predicts atoms and bonds alone."""
        if not self.config.tasks:
            message = "the model predicts atoms and bonds alone, which molattn predict writes"
            raise InputError(f"{message}; expected one that predicts molecules")

    def freeze(self, what: int | Freeze) -> None:
        """Exclude weights from training; see :meth:`molattn.model.network.Network.freeze`."""
        for net in self.networks.members:
            net.freeze(what)

    def as_given(self) -> Self:
        """Return the model with the same weights that reads molecules as given, not their parents.

        Raises:
            InputError: A model that was trained with ``--standardize``, and always standardizes.
        """
        if self.config.standardize is True:
            message = "the model was trained on standardized molecules, and predicts no others"
            raise InputError(message, option="as_given")
        model = copy.copy(self)
        model.config = replace(self.config, standardize=False, written_tasks=())
        return model

    # Molecules and batches.

    def featurize(self, smiles: Molecule, partner: Molecule | None = None) -> MoleculeRecord:
        """Featurize a molecule, and the second molecule where the model takes one."""
        partners = None if partner is None else [partner]
        record = next(self.networks.reader(partners, numbers=True)([smiles], partners))
        if isinstance(record, SmilesError):
            raise record
        return record

    def collate(self, records: Records) -> MoleculeBatch:
        """Collate molecules into a batch, on the CPU, laid out for the model's device."""
        return self.networks.collate(records)

    def forward(self, batch: Graphs, features: Tensor | None = None) -> Tensor:
        """Predict in scaled units and logits with the networks, ``[num_graphs, num_outputs]``.

        :meth:`predict` combines this with the Gaussian process, if there is one. An ensemble
        returns the mean of regressions and the logits of the mean class probabilities.

        Args:
            batch: From :meth:`collate`, or a PyG ``Data`` or ``Batch`` of
                :func:`molattn.from_smiles` (made with ``self_loops`` as in the config).
            features: Extra features of each molecule ``[num_graphs, len(config.features)]``, in
                the order of the config and in their own units.
        """
        return mean_of_members(self.networks.member_outputs(batch, features), self.config.tasks)

    # Predictions.

    def predict(
        self,
        smiles: Sequence[Molecule],
        batch_size: int = 256,
        *,
        partners: Sequence[Molecule] | None = None,
        features: ArrayLike | None = None,
        members: bool = False,
        as_given: bool = False,
        errors: Literal["raise", "nan"] = "raise",
    ) -> Array:
        """Predict molecules, ``[n, num_outputs]`` ordered as ``config.output_names``.

        Regressions are in the targets' own units, classifications are probabilities, calibrated if
        the model is. An ensemble predicts the mean of its members, of a transformed target on the
        transformed scale. With ``members`` it returns the uncalibrated prediction of each instead,
        ``[members, n, num_outputs]``. For ``as_given`` see :meth:`as_given`. With ``errors="nan"``
        an invalid molecule has the value NaN; :meth:`predict_frame` says why.
        """
        check_one_of("errors", errors, ("raise", "nan"))
        predictor = (self.as_given() if as_given else self).predictor
        if errors == "raise":
            molecules = predictor.networks.read(smiles, partners)
            rows = [*range(len(molecules))]
        else:
            molecules, rows, features = predictor.read_valid(smiles, partners, features)
        records = [molecules[row] for row in rows]
        outputs = predictor.predict_outputs(records, batch_size, features=features)
        values = predictor.values_of_members(outputs) if members else predictor.values(outputs)
        predicted = np.full((*values.shape[:-2], len(molecules), values.shape[-1]), np.nan)
        predicted[..., rows, :] = values
        return predicted

    def predict_atoms(
        self, smiles: Sequence[Molecule], batch_size: int = 256, *, level: float = 0.9
    ) -> SitePrediction:
        """Predict the atoms of molecules, in the order of the input.

        Of a model whose graphs have all hydrogens, those that the input leaves implicit follow the
        other atoms of a molecule. ``level`` is the nominal coverage of the intervals.
        """
        return self._predict_sites("atom", smiles, batch_size, level)

    def predict_bonds(
        self, smiles: Sequence[Molecule], batch_size: int = 256, *, level: float = 0.9
    ) -> SitePrediction:
        """Predict the bonds of molecules, in the order of the input; see :meth:`predict_atoms`."""
        return self._predict_sites("bond", smiles, batch_size, level)

    def _predict_sites(
        self, site: Level, smiles: Sequence[Molecule], batch_size: int, level: float
    ) -> SitePrediction:
        if site not in self.config.site_tasks:
            raise InputError(f"the model predicts no {site}s")
        networks = self.networks
        records = networks.reader(None).all(smiles)
        return predict_sites(networks, self.site_calibration, records, level, batch_size)[site]

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
        return prediction_frame(self.predictor, self.endpoints, smiles, level, batch_size, **inputs)

    def predict_interval(
        self, smiles: Sequence[Molecule], level: float = 0.9, batch_size: int = 256, **inputs: Any
    ) -> tuple[Array, Array]:
        """Predict intervals with a given nominal coverage, for regression targets.

        The half-width grows with the distance to the training molecules, on the transformed scale;
        see :mod:`molattn.model.uncertainty`. For a target in percent whose training labels are from
        0 to 100, prediction and interval end there.

        Returns:
            Lower and upper ends, ``[n, num_tasks]`` each, in the targets' own units; infinite where
            a task had too few labels for the level, NaN for classifications.

        Raises:
            ValueError: A level that is not between 0 and 1, or a model that is not calibrated.
        """
        prediction = self.predictor.predict_with_uncertainty(smiles, level, batch_size, **inputs)
        return prediction.low, prediction.high

    def predict_difference(
        self,
        smiles: Sequence[Molecule],
        references: Sequence[Molecule],
        level: float = 0.9,
        batch_size: int = 256,
        *,
        partners: Sequence[Molecule] | None = None,
        features: ArrayLike | None = None,
    ) -> Difference:
        """Predict how n molecules differ from n others, with intervals from both errors together.

        The errors of similar molecules are alike and cancel, so that the interval of a difference
        is narrower than those of two predictions suggest; see :mod:`molattn.model.difference`.
        ``partners`` and ``features`` are those of both molecules of a pair.

        Returns:
            The differences ``[n, num_outputs]``, of a target that is learned as a logarithm the
            ratios, and the ends of their intervals, ``[n, num_tasks]`` each. Ends are infinite
            where a task had too few labels for the level, and NaN for classifications and where
            :func:`molattn.model.difference.missing_interval` has a reason.

        Raises:
            ValueError: Another number of references than of molecules.
        """
        if len(smiles) != len(references):
            raise ValueError(f"references: got {len(references)}, expected {len(smiles)}")
        predictor = self.predictor
        fields = self.config.input_fields(fingerprint=self.uncertainty is not None)
        reader = self.config.reader(replace(fields, smiles=True))
        self.networks.reader(partners)  # checks whether the model takes partners
        first, second = (
            Side.of(predictor, reader.all(molecules, partners), level, batch_size, features)
            for molecules in (smiles, references)
        )
        return differences(predictor, first, second, level)

    def predict_confidence(
        self, smiles: Sequence[Molecule], batch_size: int = 256, **inputs: Any
    ) -> tuple[NDArray[np.str_], Array]:
        """Grade predictions by their expected error.

        It is the error of calibration rows that are as far from the training molecules.

        Returns:
            The confidence of each prediction, ``high``, ``medium``, ``low``, or empty where a task
            had too few labels to calibrate, ``[n, num_tasks]``; see
            :func:`molattn.model.confidence.grades`. And the expected error of each: absolute, in
            the target's own unit, or the rate at which such classes are wrong; NaN where unknown.

        Raises:
            ValueError: A model that is not calibrated.
        """
        prediction = self.predictor.predict_with_uncertainty(smiles, 0.5, batch_size, **inputs)
        return prediction.confidence, prediction.expected_error

    def explain_confidence(
        self, smiles: Sequence[Molecule], partners: Sequence[Molecule] | None = None
    ) -> list[list[str]]:
        """Say what the confidence of each prediction rests on, a text for each molecule and task.

        It names the similarity to the nearest training molecule, how large errors for similar ones
        were, or the elements, charges or the size that no training molecule has, such as
        ``nearest 0.43; errors nearby 1.60 times the mean`` or ``nearest 0.23; tin never seen``. Of
        a class it names the error that is expected at least at this similarity, whatever the
        probability: ``nearest 0.43; expected error at least 0.10``.

        Raises:
            ValueError: A model that is not calibrated.
        """
        predictor = self.predictor
        predictor.calibrated_uncertainty()
        records = self.networks.read(smiles, partners, fingerprint=True)
        return [*predictor.confidence_reasons(records)]

    def training_similarity(self, smiles: Sequence[Molecule]) -> Array:
        """Return each molecule's Tanimoto similarity to the nearest training molecule, ``[n]``.

        Morgan counts of radius 2 are compared, without the second molecule. Errors tend to be
        larger for molecules that are unlike all training molecules.

        Raises:
            ValueError: A model that is not calibrated.
        """
        predictor = self.predictor
        index = predictor.calibrated_uncertainty().fingerprints
        return index.similarity(predictor.read_fingerprints(smiles))

    def calibrate(
        self,
        smiles: Sequence[Molecule],
        targets: ArrayLike,
        training_smiles: Sequence[Molecule],
        **inputs: Any,
    ) -> None:
        """Fit prediction intervals and calibrate probabilities; training does this by itself.

        The molecules must not be those of the training, ``training_smiles``. Their labels
        ``[n, num_tasks]`` are in own units or class indices, NaN where missing; ``inputs`` are
        their ``partners`` and ``features``.
        """
        self.uncertainty = self.predictor.calibrate(smiles, targets, training_smiles, **inputs)
        if self.training_set is not None:  # its molecules refer to other fingerprints
            self.training_set = replace(self.training_set, molecules=None)

    def nearest(
        self, smiles: Sequence[Molecule | Fingerprint], count: int = 3
    ) -> list[list[TrainingMolecule]]:
        """Return the ``count`` most similar training molecules of each, with their labels.

        Training molecules are kept on request, by ``keep_training_molecules`` of
        :func:`molattn.train`; otherwise a ValueError is raised.
        """
        return self.predictor.nearest(smiles, count)

    def measured(self, smiles: Sequence[Molecule]) -> list[dict[str, Label]]:
        """Return the training labels of molecules by task, None of those that have none.

        A molecule is a training molecule if both have the same canonical SMILES in the form that
        the model reads, such as that of their parents. Otherwise, one with stereochemistry has the
        labels of the same molecule drawn without any. Of several labels it is the mean, on the
        transformed scale, and of classes all that occur, such as ``0 / 1``. Censored labels are not
        kept.

        Raises:
            ValueError: A model that keeps no training molecules, see :meth:`nearest`, or whose
                labels belong to a second molecule or extra features too.
        """
        predictor = self.predictor
        predictor.training_molecules()
        if not predictor.keeps_labels:
            raise ValueError(
                f"measured: labels depend on {', '.join(self.config.input_columns)} too"
            )
        names = [task.name for task in self.config.tasks]
        records = self.config.reader(predictor.input_fields()).all(smiles)
        return [
            {name: measured.label for name, measured in zip(names, row, strict=True)}
            for row in predictor.measured(records)
        ]

    def neighbors(
        self,
        smiles: Sequence[Molecule],
        count: int = 5,
        batch_size: int = 256,
        *,
        partners: Sequence[Molecule] | None = None,
        features: ArrayLike | None = None,
    ) -> dict[str, list[list[Neighbor]]]:
        """Return the ``count`` training rows that contribute most to predictions, by task.

        Contributions are on the transformed scale of the task, largest absolute value first. The
        contributions of all inducing points, together with a constant, add up to what the Gaussian
        process contributes; for a classification see
        :meth:`molattn.model.gaussian_process.GaussianProcessHead.neighbors`.

        Raises:
            InputError: No Gaussian process, or a count above the number of inducing points.
        """
        predictor = self.predictor
        predictor.check_neighbors(count)
        records = predictor.networks.read(smiles, partners)
        _, inputs = predictor.networks.predict(records, batch_size, features=features)
        return predictor.neighbors(records, inputs, count, batch_size)

    def embed(
        self,
        smiles: Sequence[Molecule],
        batch_size: int = 256,
        *,
        partners: Sequence[Molecule] | None = None,
        atoms: bool = False,
    ) -> NDArray[np.float32]:
        """Return the learned embeddings of molecules, ``[n, width]``.

        An embedding is the output of the readout or, in a model that was pretrained on columns
        (``molattn pretrain --pretraining-columns``), a linear function of it, without extra
        features. The embedding of a second molecule follows, and members are concatenated.

        With ``atoms`` it returns the vectors of the atoms before the readout instead, molecule
        after molecule, ``[total number of atoms, width]``, without those of second molecules.
        """
        records = self.networks.reader(partners).all(smiles, partners)
        return self.networks.embed(records, batch_size, atoms=atoms)

    # Ensembles, saving and loading.

    @classmethod
    def ensemble(cls, models: Sequence["MolAttn"]) -> "MolAttn":
        """Join trained models into one that averages their predictions, in evaluation mode.

        Weights are copied. The models have the same scaling and config, except for the number of
        members, such as those trained on the same rows with different seeds. An ensemble has no
        Gaussian process, calibration or endpoints, which belong to one model, so train the models
        with ``predictor="network"``.

        Raises:
            ValueError: A model that differs from the first, or has no trained network.
        """
        if not models:
            raise ValueError("ensemble: expected at least one model")
        first = models[0]
        for number, model in enumerate(models, start=1):
            if model.predictor.has_untrained_head:
                raise ValueError(
                    f"ensemble: model {number} predicts by its Gaussian process alone, which "
                    "an ensemble does not have"
                )
            # Kernels are of the Gaussian process.
            config = replace(model.config, kernels=first.config.kernels)
            difference = first.config.difference(config)
            if difference := difference or first.scaling.difference(model.scaling):
                raise ValueError(
                    f"ensemble: model {number} differs from model 1 in {difference}; expected "
                    "members of the same tasks, network, featurizer, features and scaling"
                )
        nets = [copy.deepcopy(net).to(first.device) for model in models for net in model.nets]
        joined = copy.deepcopy(first)
        joined.config = replace(joined.config, members=len(nets), kernels=())
        joined.uncertainty = None  # it describes the errors of one member
        joined.gaussian_process = None  # its kernel reads the embedding of one member
        joined.site_calibration = None
        joined.training_set = None  # the others may have other rows
        joined.endpoints = {}
        joined.updates = ()
        joined.nets = nn.ModuleList(nets)
        return joined.eval()

    def inputs_remark(self) -> str:
        """Return a line if RDKit has another version than in the training, else ""."""
        return artefact.inputs_remark(self.versions)

    def to_files(self) -> ModelFiles:
        """Return the files of the model."""
        files: dict[str, bytes] = {}
        for part in (self.uncertainty, self.training_set):
            files |= {} if part is None else part.to_files(self.config)
        files |= {} if self.gaussian_process is None else self.gaussian_process.to_files()
        files |= {} if self.site_calibration is None else self.site_calibration.to_files()
        if self.endpoints:
            endpoints = to_json(dict(self.endpoints), dict[str, Endpoint], indent=1)
            files[artefact.ENDPOINTS_FILE] = endpoints
        if self.versions:
            files[artefact.VERSIONS_FILE] = to_json({"versions": dict(self.versions)})
        if self.updates:
            files[artefact.UPDATES_FILE] = to_json(self.updates, tuple[Update, ...], indent=1)
        return ModelFiles.pack(self.config.to_dict(), self.state_dict(), files)

    def save_pretrained(
        self, folder: str | Path, *, scores: Mapping[str, str] | None = None
    ) -> None:
        """Write the model to a folder, in place of another model in it; other files stay.

        A new folder is written and renamed: if this is interrupted, the previous model stays. A
        ``README.md`` lists the predicted properties, with ``scores`` of each task by its name.
        """
        self.to_files().save(
            Path(folder), artefact.model_card(self.config.tasks_by_method, scores or {})
        )

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
            with Undrawn(_MOST_NUMBERS * len(files.content[artefact.WEIGHTS_FILE])):
                model = cls(config, **parts)
            if model.config != config:
                raise ValueError("got custom parts, but the model was saved without any")
            files.load_weights(model)
            model.site_calibration = SiteCalibration.from_files(files, config)
            model.uncertainty = Uncertainty.from_files(files, config)
            model.training_set = TrainingSet.from_files(files, config)
            model.gaussian_process = GaussianProcessHead.from_files(files, config)
            model.endpoints = files.parse(artefact.ENDPOINTS_FILE, dict[str, Endpoint]) or {}
            model.versions = files.versions
            model.updates = files.parse(artefact.UPDATES_FILE, tuple[Update, ...]) or ()
        return model.eval()
