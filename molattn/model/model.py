"""MolAttn: a molecular property predictor."""

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional, Self, Union
from weakref import WeakKeyDictionary

import numpy as np
import torch
from huggingface_hub import ModelCard, ModelHubMixin
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.data import Data

from molattn.chem.fingerprint_index import FingerprintIndex, read_fingerprints
from molattn.chem.fingerprints import Fingerprint
from molattn.chem.parse import Molecule
from molattn.chem.reader import Fields, MoleculeReader
from molattn.config import Freeze
from molattn.errors import InputError, SmilesError, in_python, quoted
from molattn.graph import MoleculeBatch, collate
from molattn.model import artefact
from molattn.model.batching import batches
from molattn.model.config import MolAttnConfig
from molattn.model.endpoints import Endpoint, endpoints_from_files, endpoints_to_bytes
from molattn.model.extra_features import given_numbers, joined_numbers, number_type, scaled_numbers
from molattn.model.gaussian_process.head import GaussianProcessHead, Neighbor, kernel_inputs
from molattn.model.gaussian_process.kernel import KernelInputs
from molattn.model.network import Network
from molattn.model.outputs import class_probabilities, mean_of_members
from molattn.model.reference_inputs import ReferenceInputs
from molattn.model.target_transform import TargetTransform, own_units, transformed_labels
from molattn.model.training_set import TrainingMolecule, TrainingSet
from molattn.model.uncertainty.model_uncertainty import Uncertainty, assemble_prediction
from molattn.nn.attention_heads import COMBINES
from molattn.record import MoleculeRecord
from molattn.utils.devices import finish, to_device, to_host

__all__ = ["MolAttn", "MolAttnConfig"]

_SAME_SCALING = 1e-6  # largest difference, relative to the scale: rounding in single precision
_LOCK = threading.Lock()
_PREDICTING: "WeakKeyDictionary[MolAttn, tuple[int, list[nn.Module]]]" = WeakKeyDictionary()
"""Number of threads in which a model predicts, and the modules that were in training mode."""


class MolAttn(
    nn.Module,
    ModelHubMixin,
    library_name="molattn",
    tags=["chemistry"],
    model_card_template=artefact.MODEL_CARD,
):
    """Attention over all atom pairs of a molecule, and a prediction of its properties.

    Its networks (``nets``) return outputs in scaled units and logits, which the model converts to
    the targets' own units and to probabilities. A trained model has one network; :meth:`ensemble`
    joins several models into one.

    Labels are transformed (``config.target_transforms``), then standardized. The prediction of a
    transformed target estimates the median of its distribution rather than the mean.

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

    Attributes:
        config: The options; ``custom_parts`` names your own modules.
        uncertainty: Calibration and training molecules; None before :meth:`calibrate`.
        gaussian_process: The Gaussian process whose predictions are combined with those of the
            networks; None = the networks predict alone.
        training_set: Distribution of the training labels, and the training molecules if they are
            kept; None if the model was not trained by :func:`molattn.train`.
        endpoints: What predicted properties mean, by task.
        reference_inputs: Versions that calculated the inputs of the training, with the inputs of a
            few molecules; see :meth:`inputs_remark`. None if the model was not trained by
            :func:`molattn.train`.

    Raises:
        InputError: A part that is not a module, or not of the class named in the config.

    Example:
        >>> model = MolAttn(MolAttnConfig(tasks=("logS",)))
        >>> model.predict(["CCO", "c1ccccc1"]).shape
        (2, 1)

        Composed by hand, of a PyG layer in residual blocks, a PyG aggregation and a linear head:

        >>> from molattn.config import NetworkConfig
        >>> from molattn.nn.encoder import Encoder
        >>> from torch_geometric.nn import GATv2Conv, MeanAggregation
        >>> network = NetworkConfig(width=64, edge_width=16, pairs="bonds")
        >>> model = MolAttn(
        ...     MolAttnConfig(tasks="logS", network=network),
        ...     encoder=Encoder(lambda: GATv2Conv(64, 64, edge_dim=16), layers=2, channels=64),
        ...     readout=MeanAggregation(),
        ...     head=nn.Linear(64, 1),
        ... )
        >>> model.predict(["CCO", "c1ccccc1"]).shape
        (2, 1)
    """

    target_mean: Tensor
    target_scale: Tensor
    feature_mean: Tensor
    feature_scale: Tensor

    def __init__(
        self,
        config: MolAttnConfig,
        *,
        encoder: Optional[nn.Module] = None,
        readout: Optional[nn.Module] = None,
        head: Optional[nn.Module] = None,
    ) -> None:
        super().__init__()
        given = {"encoder": encoder, "readout": readout, "head": head}
        parts = {name: part for name, part in given.items() if part is not None}
        for name, part in parts.items():
            if not isinstance(part, nn.Module):
                raise InputError(f"{name}: got {part!r}, expected a torch.nn.Module")
        classes = _classes(parts)
        expected = dict(config.custom_parts)
        if expected and classes != expected:
            raise InputError(
                f"the model has custom parts: got {_listed(classes)}; pass "
                f"{_listed(expected)} to MolAttn.from_pretrained or MolAttn"
            )
        self.config = replace(config, custom_parts=tuple(classes.items())) if parts else config
        # Each member has weights of its own; one member has the very modules that were given.
        copies = [parts, *(copy.deepcopy(parts) for _ in range(1, config.members))]
        self.nets = nn.ModuleList(Network(self.config, **part) for part in copies)
        self.uncertainty: Optional[Uncertainty] = None
        self.gaussian_process: Optional[GaussianProcessHead] = None
        self.training_set: Optional[TrainingSet] = None
        self.endpoints: dict[str, Endpoint] = {}
        self.reference_inputs: Optional[ReferenceInputs] = None
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
            changed = getattr(self, name)
            if changed.dtype != before.dtype:
                setattr(self, name, before.to(changed.device))
        return self

    @classmethod
    def ensemble(cls, models: Sequence["MolAttn"]) -> "MolAttn":
        """Join trained models into one that averages their predictions.

        The ensemble is saved, loaded and used like any other model. If a model is itself an
        ensemble, its members become members of the new one. Weights are copied. The ensemble has
        no Gaussian process, no calibration and no scores of endpoints, which are those of one
        model: it predicts the mean of the networks alone, so train the models with
        ``predictor="network"``.

        Args:
            models: Models with the same scaling and, except for the number of members, the same
                config, such as models trained on the same rows with different seeds.

        Returns:
            The ensemble, in evaluation mode, on the first model's device.

        Raises:
            InputError: No model, or one that differs from the first.
        """
        if not models:
            raise InputError("ensemble: expected at least one model")
        for number, model in enumerate(models, start=1):
            if model.has_untrained_head:
                raise InputError(
                    f"ensemble: model {number} predicts by its Gaussian process alone, which "
                    "an ensemble does not have"
                )
        for number, other in enumerate(models[1:], start=2):
            if difference := models[0]._difference(other):
                raise InputError(
                    f"ensemble: model {number} differs from model 1 in {difference}; expected "
                    "members of the same tasks, network, featurizer, features and scaling"
                )
        nets = [net for model in models for net in model.nets]
        joined = copy.deepcopy(models[0])
        joined.config = replace(joined.config, members=len(nets), kernels=())
        joined.uncertainty = None  # it describes the errors of one member
        joined.gaussian_process = None  # its kernel reads the embedding of one member
        joined.training_set = None  # the others may have other rows
        joined.endpoints = {
            name: replace(endpoint, rows=None, scores="", coverage=None)
            for name, endpoint in joined.endpoints.items()
        }
        joined.nets = nn.ModuleList(copy.deepcopy(net).to(joined._weight.device) for net in nets)
        return joined.eval()

    def _difference(self, other: "MolAttn") -> str:
        """Name the first difference between two models besides weights and members; "" = none."""
        others = replace(other.config, kernels=self.config.kernels)  # of the Gaussian process
        if difference := self.config.difference(others):
            return difference
        for what in ("target", "feature"):
            (mean, scale), (other_mean, other_scale) = (
                [model.get_buffer(f"{what}_{name}").cpu() for name in ("mean", "scale")]
                for model in (self, other)
            )
            # A mean may be much larger than the scale, so differences are relative to the latter.
            differences = torch.stack([mean - other_mean, scale - other_scale]).abs()
            if bool((differences > _SAME_SCALING * scale).any()):
                return f"the {what} scaling"
        return ""

    @property
    def has_untrained_head(self) -> bool:
        """Whether the Gaussian process alone was trained, and predicts alone."""
        return self.gaussian_process is not None and bool((self.gaussian_process.shares == 1).all())

    def forward(
        self, batch: Union[MoleculeBatch, Data], features: Optional[Tensor] = None
    ) -> Tensor:
        """Predict in scaled units and logits with the networks, ``[num_graphs, num_outputs]``.

        :meth:`predict` combines this with the Gaussian process, if there is one. With several
        members these are the outputs that :meth:`unscale` converts to the mean of their
        predictions: the mean of regressions, the logits of the mean class probabilities.

        Args:
            batch: From :meth:`collate`, or a PyG ``Data`` or ``Batch`` of
                :func:`molattn.from_smiles` (made with ``self_loops`` as in the config).
            features: Extra features of each molecule ``[num_graphs, len(config.features)]``, in
                the order of the config and in their own units.

        Raises:
            ValueError: Features that are missing or of a wrong shape, or a graph that lacks atom
                pairs.
        """
        return mean_of_members(self.member_outputs(batch, features), self.config.tasks)

    def member_outputs(
        self,
        batch: Union[MoleculeBatch, Data],
        features: Optional[Tensor] = None,
        atoms: Optional[Tensor] = None,
    ) -> Tensor:
        """Return the outputs of each member, ``[members, num_graphs, num_outputs]``.

        Args:
            batch: As for :meth:`forward`.
            features: Likewise.
            atoms: Output of the encoder of the only member, if it is known; see
                :meth:`molattn.model.network.Network.encode`.
        """
        numbers = self.scaled_features(batch, features)
        return self.outputs_and_embedding(batch, numbers, atoms)[0]

    def scaled_features(
        self, batch: Union[MoleculeBatch, Data], features: Optional[Tensor]
    ) -> Optional[Tensor]:
        """Return the extra features of molecules as the networks read them.

        Args:
            batch: As for :meth:`forward`.
            features: Likewise.

        Returns:
            ``[num_graphs, config.num_numbers]``: features from the table, then those calculated for
            the molecule and for the second molecule, scaled; None without any.
        """
        numbers = joined_numbers(batch, features, self.config)
        if numbers is None:
            return None
        scales, given = (self.feature_mean, self.feature_scale), len(self.config.features)
        return scaled_numbers(numbers, *scales, given).to(self._weight.dtype)

    def outputs_and_embedding(
        self,
        batch: Union[MoleculeBatch, Data],
        numbers: Optional[Tensor],
        atoms: Optional[Tensor] = None,
    ) -> tuple[Tensor, Tensor]:
        """Return :meth:`member_outputs`, and the members' embeddings concatenated.

        ``numbers`` are those of :meth:`scaled_features`, ``atoms`` as for :meth:`member_outputs`.
        """
        outputs, embeddings = [], []
        for net in self._networks:
            molecules = net.encode(batch, atoms)
            outputs.append(net.decode(molecules, numbers))
            embeddings.append(net.project(molecules))
        return torch.stack(outputs), torch.cat(embeddings, dim=-1)

    def freeze(self, what: Union[int, Freeze]) -> None:
        """Exclude weights from training; see :meth:`molattn.model.network.Network.freeze`.

        Args:
            what: ``none``, ``embeddings``, ``encoder`` or a number of blocks.
        """
        for net in self._networks:
            net.freeze(what)

    @property
    def has_frozen_encoder(self) -> bool:
        """Whether it takes one molecule, and :meth:`freeze` has frozen its encoder."""
        frozen = all(net.has_frozen_encoder for net in self._networks)
        return frozen and not self.config.has_partner

    # Scaling.

    def set_target_scaling(
        self, mean: ArrayLike, scale: ArrayLike, transforms: Sequence[TargetTransform] = ()
    ) -> None:
        """Set how labels are scaled: the transform of each task, then mean and scale.

        This removes the calibration and the Gaussian process, which depend on the scaling.

        Args:
            mean: Means of the transformed training labels, ``[num_tasks]``.
            scale: Their standard deviations, ``[num_tasks]``.
            transforms: Of each task; by default the identity.

        Raises:
            InputError: Transforms that do not fit the tasks.
            ValueError: A wrong number of values, a value that is not finite, a scale that is not
                positive, or a classification whose mean and scale are not 0 and 1.
        """
        config = replace(self.config, target_transforms=tuple(transforms))
        self._set_scaling("target", mean, scale)
        self.config = config
        self.uncertainty = self.gaussian_process = None

    def set_feature_scaling(self, mean: ArrayLike, scale: ArrayLike) -> None:
        """Set the training mean and standard deviation of all extra molecule features.

        Features from the table, then calculated ones: ``[config.num_numbers]`` each.

        Raises:
            ValueError: As :meth:`set_target_scaling`.
        """
        self._set_scaling("feature", mean, scale)

    def _set_scaling(self, what: str, mean: ArrayLike, scale: ArrayLike) -> None:
        values = []
        for name, given in (("mean", mean), ("scale", scale)):
            buffer = self.get_buffer(f"{what}_{name}")
            new = torch.as_tensor(np.asarray(given), dtype=buffer.dtype)
            if new.shape != buffer.shape or not bool(new.isfinite().all()):
                raise ValueError(
                    f"{what} scaling: got {new.tolist()}, expected {buffer.numel()} finite values"
                )
            values.append(new)
        if not bool((values[1] > 0).all()):
            raise ValueError(f"{what} scale: got {values[1].tolist()}, expected values > 0")
        tasks = self.config.tasks if what == "target" else ()
        for task, m, s in zip(tasks, *(new.tolist() for new in values), strict=bool(tasks)):
            if task.kind != "regression" and (m, s) != (0.0, 1.0):
                raise ValueError(f"target scaling of {task.name!r}: got {m}, {s}, expected 0, 1")
        for name, new in zip(("mean", "scale"), values, strict=True):
            self.get_buffer(f"{what}_{name}").copy_(new)

    def scale(self, targets: Tensor) -> Tensor:
        """Transform and standardize labels ``[n, num_tasks]``.

        Class indices and NaN stay as they are.
        """
        targets = transformed_labels(targets, self.config.target_transforms)
        return ((targets - self.target_mean) / self.target_scale).to(self._weight.dtype)

    def unscale(self, prediction: Tensor) -> Tensor:
        """Convert outputs of :meth:`forward` to the targets' own units and to probabilities.

        Pass outputs in double precision, see :func:`molattn.model.outputs.class_probabilities`.
        """
        return self._predictions(self._transformed(prediction))

    def _predictions(self, outputs: Tensor) -> Tensor:
        """Convert what :meth:`predict_outputs` returns to own units and probabilities."""
        config = self.config
        return own_units(
            class_probabilities(outputs, config.tasks), config.tasks, config.target_transforms
        )

    def _transformed(self, outputs: Tensor) -> Tensor:
        """Convert scaled regressions to the transformed scale; a logit has mean 0 and scale 1."""
        mean, scale = (
            torch.cat(
                [
                    value.expand(task.num_outputs)
                    for value, task in zip(values.to(outputs), self.config.tasks, strict=True)
                ]
            )
            for values in (self.target_mean, self.target_scale)
        )
        return outputs * scale + mean

    # Molecules.

    def featurize(self, smiles: Molecule, partner: Optional[Molecule] = None) -> MoleculeRecord:
        """Convert a molecule to a featurized one with all features that the model uses.

        Args:
            smiles: The molecule.
            partner: The second molecule, where the model takes one.

        Raises:
            SmilesError: An invalid molecule; gives the reason.
            ValueError: A second molecule is given but not used by the model, or needed but missing.
        """
        partners = None if partner is None else [partner]
        record = next(self._reader(partners, numbers=True)([smiles], partners))
        if isinstance(record, SmilesError):
            raise record
        return record

    def _reader(
        self,
        partners: Optional[Sequence[Molecule]],
        *,
        numbers: bool = False,
        fingerprint: bool = False,
    ) -> MoleculeReader:
        """Return a reader; raise if second molecules are missing or not used."""
        if (partners is not None) != self.config.has_partner:
            raise ValueError(
                "partners: the model needs a second molecule for each molecule"
                if self.config.has_partner
                else "partners: the model takes no second molecule; leave partners out"
            )
        return MoleculeReader(
            self.config.featurizer,
            Fields(
                numbers=self.config.calculator if numbers else None,
                counts=self.config.counter if numbers else None,
                fingerprint=fingerprint,
            ),
            standardize=self.config.standardize,
            radius=self.config.network.radius,
        )

    def _records(
        self,
        smiles: Sequence[Molecule],
        partners: Optional[Sequence[Molecule]],
        *,
        fingerprints: bool = False,
    ) -> list[MoleculeRecord]:
        """Read molecules with all features that the model uses; raise if one is invalid."""
        reader = self._reader(partners, numbers=True, fingerprint=fingerprints)
        return reader.all(smiles, partners)

    def collate(self, records: Sequence[MoleculeRecord]) -> MoleculeBatch:
        """Collate molecules into a batch, on the CPU, laid out for the model's device."""
        return collate(
            records,
            self_loops=self.config.network.self_loops,
            edge_codes=self.config.edge_codes,
            device=self._weight.device,
        )

    def predict_records(
        self,
        records: Sequence[MoleculeRecord],
        batch_size: int = 256,
        *,
        features: Optional[ArrayLike] = None,
        members: bool = False,
    ) -> NDArray[np.float64]:
        """Predict featurized molecules, ``[n, num_outputs]`` ordered as ``config.output_names``.

        Regressions are in the targets' own units. Classifications are probabilities, calibrated
        if the model is. An ensemble predicts the mean of its members' predictions, of a transformed
        target the mean on the transformed scale.

        Args:
            records: n molecules.
            batch_size: Molecules in a batch; fewer where they are large, see
                :func:`molattn.model.batching.batches`.
            features: Extra features ``[n, len(config.features)]``, if the config names any.
            members: Return the prediction of each member instead, ``[members, n, num_outputs]``,
                uncalibrated.

        Raises:
            ValueError: Features of another shape, or that are not finite.
        """
        outputs = torch.from_numpy(self.predict_outputs(records, batch_size, features=features))
        if members:
            return self._predictions(outputs).numpy()
        mean = mean_of_members(outputs, self.config.tasks)
        if self.uncertainty is None:
            return self._predictions(mean).numpy()
        return self.uncertainty.predictions(self.config, mean.numpy())

    def predict_outputs(
        self,
        records: Sequence[MoleculeRecord],
        batch_size: int = 256,
        *,
        features: Optional[ArrayLike] = None,
    ) -> NDArray[np.float64]:
        """Predict featurized molecules with each member, ``[members, n, num_outputs]``.

        Regressions are on the transformed scale (``config.target_transforms``), classifications are
        logits, uncalibrated. See :meth:`predict_records` for the arguments and errors.
        """
        return self.combined(*self.network_outputs(records, batch_size, features=features))

    def combined(self, outputs: NDArray[np.float64], inputs: KernelInputs) -> NDArray[np.float64]:
        """Return what :meth:`predict_outputs` does, given what :meth:`network_outputs` returned."""
        if self.gaussian_process is not None:
            outputs = self.gaussian_process.combine(outputs, inputs)
        return self.to_transformed(outputs)

    def to_transformed(self, outputs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert scaled regressions ``[..., num_outputs]`` to the transformed scale."""
        return self._transformed(torch.from_numpy(outputs)).numpy()

    def neighbors(
        self,
        smiles: Sequence[Molecule],
        count: int = 5,
        batch_size: int = 256,
        *,
        partners: Optional[Sequence[Molecule]] = None,
        features: Optional[ArrayLike] = None,
    ) -> dict[str, list[list[Neighbor]]]:
        """Return for each molecule the training rows that contribute most to its predictions.

        See :meth:`neighbors_of_records`.

        Args:
            smiles: n molecules, as SMILES or RDKit molecules.
            count: Number of training rows for each, from 1 to the number of inducing points.
            batch_size: Molecules in a batch.
            partners: The second molecule of each, where the model takes one.
            features: Extra features ``[n, len(config.features)]``, if the config names any.

        Returns:
            For each task, by name, ``count`` training rows of each of the n molecules.

        Raises:
            InputError: A model without a Gaussian process, or another count.
            SmilesError: An invalid molecule; gives its position and the reason.
        """
        self.check_neighbors(count)
        records = self._records(smiles, partners)
        return self.neighbors_of_records(records, count, batch_size, features=features)

    def neighbors_of_records(
        self,
        records: Sequence[MoleculeRecord],
        count: int = 5,
        batch_size: int = 256,
        *,
        features: Optional[ArrayLike] = None,
    ) -> dict[str, list[list[Neighbor]]]:
        """Return the training rows that contribute most to the predictions of featurized molecules.

        Contributions to a task are on its transformed scale, largest absolute value first. Those of
        all inducing points, together with a constant, add up to the part of the prediction that the
        Gaussian process has; for a classification see
        :meth:`molattn.model.gaussian_process.head.GaussianProcessHead.neighbors`.

        Arguments, result and errors are those of :meth:`neighbors`.
        """
        _, inputs = self.network_outputs(records, batch_size, features=features)
        return self.neighbors_of_inputs(inputs, count)

    def neighbors_of_inputs(
        self, inputs: KernelInputs, count: int = 5
    ) -> dict[str, list[list[Neighbor]]]:
        """Do the same, given the inputs of the kernels that :meth:`network_outputs` returned."""
        process = self.check_neighbors(count)
        kept = self.training_set and self.training_set.molecules
        smiles = dict(zip(kept.rows.tolist(), kept.smiles, strict=True)) if kept else {}
        return {
            task.name: [
                [
                    one._replace(contribution=one.contribution * scale, smiles=smiles.get(one.row))
                    for one in row
                ]
                for row in found
            ]
            for task, scale, found in zip(
                self.config.tasks,
                self.target_scale.tolist(),
                process.neighbors(inputs, count),
                strict=True,
            )
        }

    def check_neighbors(self, count: int, name: str = "count") -> GaussianProcessHead:
        """Check that a number of neighbors can be returned.

        Args:
            count: The number.
            name: What messages call it.

        Returns:
            The Gaussian process of the model.

        Raises:
            InputError: A model without a Gaussian process, or a count below 1 or above the number
                of its inducing points.
        """
        if (process := self.gaussian_process) is None:
            raise InputError(
                f"{name}: the model has no Gaussian process, so that it has no neighbors"
            )
        most = len(process.rows)
        if not isinstance(count, (int, np.integer)) or not 1 <= count <= most:
            raise InputError(
                f"{name}: got {quoted(count)}, expected a whole number from 1 to {most}, the "
                "number of inducing points of the Gaussian process"
            )
        return process

    def network_outputs(
        self,
        records: Sequence[MoleculeRecord],
        batch_size: int = 256,
        *,
        features: Optional[ArrayLike] = None,
    ) -> tuple[NDArray[np.float64], KernelInputs]:
        """Predict with each network alone, and return what the kernels read of the molecules.

        Returns:
            ``[members, n, num_outputs]``: regressions in scaled units, logits of classifications;
            and the inputs of :class:`molattn.model.gaussian_process.kernel.MoleculeKernel`.
        """
        given = given_numbers(features, len(records), self.config)

        def compute(batch: MoleculeBatch, rows: slice) -> tuple[Tensor, Tensor]:
            extra = None if given is None else to_device(given[rows], self._weight.device)
            numbers = self.scaled_features(batch, extra)
            outputs, embedding = self.outputs_and_embedding(batch, numbers)
            return outputs, embedding.float()

        nothing = torch.zeros(len(self.nets), 0, len(self.config.output_names)).double()
        parts = self._in_batches(records, batch_size, compute)
        outputs = torch.cat([nothing, *(part[0].double() for part in parts)], dim=1)
        embedding = torch.cat([torch.zeros(0, self.embedding_width()), *(e for _, e in parts)])
        table = None if given is None else given.numpy()
        return outputs.numpy(), kernel_inputs(self.config, records, embedding.numpy(), table)

    def predict(
        self,
        smiles: Sequence[Molecule],
        batch_size: int = 256,
        *,
        partners: Optional[Sequence[Molecule]] = None,
        features: Optional[ArrayLike] = None,
        members: bool = False,
    ) -> NDArray[np.float64]:
        """Predict molecules, ``[n, num_outputs]``; see :meth:`predict_records`.

        Args:
            smiles: n molecules, as SMILES or RDKit molecules.
            batch_size: Molecules in a batch.
            partners: The second molecule of each, such as its solvent, where the model takes one.
            features: Extra features ``[n, len(config.features)]``, if the config names any.
            members: Return the prediction of each member instead.

        Raises:
            SmilesError: An invalid molecule; gives its position and the reason.
            TypeError: A molecule in place of a list.
            ValueError: Partners that are missing, not used by the model, or of a wrong number.
        """
        records = self._records(smiles, partners)
        return self.predict_records(records, batch_size, features=features, members=members)

    def _outputs_and_fingerprints(
        self,
        smiles: Sequence[Molecule],
        batch_size: int = 256,
        *,
        partners: Optional[Sequence[Molecule]] = None,
        features: Optional[ArrayLike] = None,
    ) -> tuple[NDArray[np.float64], Sequence[Fingerprint]]:
        records = self._records(smiles, partners, fingerprints=True)
        outputs = self.predict_outputs(records, batch_size, features=features)
        return outputs, [record.fingerprint for record in records]  # pyright: ignore

    def embedding_width(self, *, atoms: bool = False) -> int:
        """Return the width of the vectors that :meth:`embed` returns."""
        return sum(net.atom_width if atoms else net.molecule_width for net in self._networks)

    def embed_records(
        self, records: Sequence[MoleculeRecord], batch_size: int = 256, *, atoms: bool = False
    ) -> NDArray[np.float32]:
        """Embed featurized molecules; see :meth:`embed`."""

        def compute(batch: MoleculeBatch, rows: slice) -> tuple[Tensor]:
            of_nets = [
                net.encode_atoms(batch)[0] if atoms else net.project(net.encode(batch))
                for net in self._networks
            ]
            return (torch.cat(of_nets, dim=-1).float(),)

        parts = self._in_batches(records, batch_size, compute)
        nothing = torch.zeros(0, self.embedding_width(atoms=atoms))
        return torch.cat([nothing, *(part for (part,) in parts)]).numpy()

    def embed(
        self,
        smiles: Sequence[Molecule],
        batch_size: int = 256,
        *,
        partners: Optional[Sequence[Molecule]] = None,
        atoms: bool = False,
    ) -> NDArray[np.float32]:
        """Return the learned embeddings of molecules, ``[n, width]``.

        An embedding is the output of the readout or, of a model that was pretrained on columns
        (``molattn pretrain --pretraining-columns``), a linear function of it.

        Extra molecule features are not part of them. An ensemble returns the members' vectors
        concatenated, not their mean: each member has learned coordinates of its own.

        Args:
            smiles: n molecules, as SMILES or RDKit molecules.
            batch_size: Molecules in a batch.
            partners: The second molecule of each, where the model takes one; its vector follows.
            atoms: Return the vectors of the atoms before the readout instead, molecule after
                molecule, ``[total number of atoms, width]``, without those of second molecules.

        Raises:
            SmilesError: An invalid molecule; gives its position and the reason.
            TypeError: A molecule in place of a list.

        Example:
            >>> model = MolAttn(MolAttnConfig(tasks=("logS",)))
            >>> model.embed(["CCO", "C"]).shape, model.embed(["CCO", "C"], atoms=True).shape
            ((2, 256), (4, 128))
        """
        records = self._reader(partners).all(smiles, partners)
        return self.embed_records(records, batch_size, atoms=atoms)

    @torch.inference_mode()
    def _in_batches(
        self,
        records: Sequence[MoleculeRecord],
        size: int,
        compute: Callable[[MoleculeBatch, slice], tuple[Tensor, ...]],
    ) -> list[tuple[Tensor, ...]]:
        """Compute tensors of each batch, and the slice of its records, in evaluation mode.

        They are copied to the CPU. It does not wait for a GPU before the last batch.
        """
        for place, record in enumerate(records):
            if not record.num_atoms or (record.partner and not record.partner.num_atoms):
                raise ValueError(f"records: molecule {place} has no atoms")
        parts, start = [], 0
        with self.evaluating():
            for group in batches(records, size, lambda record: record):
                rows = slice(start, start + len(group))
                batch = to_device(self.collate(group), self._weight.device)
                parts.append(tuple(to_host(part) for part in compute(batch, rows)))
                start = rows.stop
            finish(self._weight.device)
        return parts

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Be in evaluation mode until the last thread that predicts has left the block."""
        with _LOCK:
            if self not in _PREDICTING:
                _PREDICTING[self] = 0, [module for module in self.modules() if module.training]
            count, trained = _PREDICTING[self]
            _PREDICTING[self] = count + 1, trained
            self.eval()
        try:
            yield
        finally:
            with _LOCK:
                count, trained = _PREDICTING.pop(self)
                if count > 1:
                    _PREDICTING[self] = count - 1, trained
                else:
                    for module in trained:
                        module.training = True

    @property
    def _networks(self) -> list[Network]:
        return [net for net in self.nets if isinstance(net, Network)]

    @property
    def _weight(self) -> Tensor:
        return next(self.parameters())

    # Uncertainty.

    def calibrate(
        self,
        smiles: Sequence[Molecule],
        targets: ArrayLike,
        training_smiles: Sequence[Molecule],
        **inputs: Any,
    ) -> None:
        """Fit prediction intervals and calibrate probabilities; training does this by itself.

        Args:
            smiles: n molecules that the model was not trained on.
            targets: Their labels ``[n, num_tasks]`` in original units or as class indices, NaN
                where missing.
            training_smiles: The molecules that it was trained on.
            inputs: Arguments of :meth:`predict` for the n molecules (``partners``, ``features``).

        Raises:
            SmilesError: An invalid molecule; gives its position and the reason.
            InputError: No training molecule; a label that is infinite, no class of the target, or
                0 or below if the model learned logarithms.
            ValueError: Targets of another shape.
        """
        labels = np.asarray(targets, dtype=np.float64)
        if labels.shape != (expected := (len(smiles), len(self.config.tasks))):
            raise ValueError(f"targets: got {labels.shape}, expected {expected}")
        for task, transform, column in zip(
            self.config.tasks, self.config.target_transforms, labels.T, strict=True
        ):
            if task.kind != "regression":
                is_label = np.isin(column, np.arange(len(task.classes)))
                expected = f"the index of a class, from 0 to {len(task.classes) - 1}, or NaN"
            elif transform.kind == "log":
                is_label = np.isfinite(column) & (column > 0.0)
                expected = "a number above 0 or NaN, as the model learned logarithms"
            else:
                is_label, expected = np.isfinite(column), "a finite number or NaN"
            if len(rows := np.flatnonzero(~is_label & ~np.isnan(column))):
                raise InputError(
                    f"targets: molecule {rows[0]}, {quoted(task.name)}: got {column[rows[0]]:g}, "
                    f"expected {expected}"
                )
        outputs, held_out = self._outputs_and_fingerprints(smiles, **inputs)
        prints = read_fingerprints(training_smiles, standardize=self.config.standardize)
        molecules = FingerprintIndex.from_fingerprints(prints)
        self.uncertainty = Uncertainty.fit(self.config, molecules, held_out, outputs, labels)
        if self.training_set is not None:  # its molecules refer to other fingerprints
            self.training_set = replace(self.training_set, molecules=None)

    def predict_interval(
        self, smiles: Sequence[Molecule], level: float = 0.9, batch_size: int = 256, **inputs: Any
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Predict intervals with a given nominal coverage, for regression targets.

        The interval is the prediction plus and minus a half-width that grows with the distance to
        the training molecules; see :mod:`molattn.model.uncertainty.calibration`. Of a transformed
        target it is that on the transformed scale, with both ends converted to own units. Of a
        target in percent whose training labels are from 0 to 100 it ends there.

        Args:
            smiles: n molecules, as SMILES or RDKit molecules.
            level: The probability, between 0 and 1.
            batch_size: Molecules in a batch.
            inputs: Other arguments of :meth:`predict` (``partners``, ``features``).

        Returns:
            Lower and upper ends, ``[n, num_tasks]`` each, in the targets' own units; infinite where
            a task had too few labels for the level, NaN for classifications.

        Raises:
            InputError: A level outside the range, or a model that is not calibrated.
            SmilesError: An invalid molecule; gives its position and the reason.
        """
        uncertainty = self._calibrated()
        outputs, prints = self._outputs_and_fingerprints(smiles, batch_size, **inputs)
        found = assemble_prediction(
            self.config, uncertainty, outputs, prints, level, self.training_set
        )
        return found.low, found.high

    def training_similarity(self, smiles: Sequence[Molecule]) -> NDArray[np.float64]:
        """Return each molecule's Tanimoto similarity to the nearest training molecule, ``[n]``.

        Morgan counts of radius 2 are compared, see
        :class:`molattn.chem.fingerprint_index.FingerprintIndex`, without the second molecule.
        Errors tend to be larger for molecules that are unlike all training molecules.

        Raises:
            InputError: A model that is not calibrated.
            SmilesError: An invalid molecule; gives its position and the reason.
        """
        known = self._calibrated().molecules
        return known.similarity(read_fingerprints(smiles, standardize=self.config.standardize))

    def nearest(self, smiles: Sequence[Molecule], count: int = 3) -> list[list[TrainingMolecule]]:
        """Return for each molecule the most similar training molecules with their labels.

        Similarity is that of :meth:`training_similarity`. Training molecules are kept on request,
        by ``keep_training_molecules`` of :func:`molattn.train`.

        Args:
            smiles: n molecules, as SMILES or RDKit molecules.
            count: Most training molecules of each.

        Raises:
            InputError: A model that keeps no training molecules, or a count below 1.
            SmilesError: An invalid molecule; gives its position and the reason.
        """
        prints = read_fingerprints(smiles, standardize=self.config.standardize)
        return self.nearest_to_fingerprints(prints, count)

    def nearest_to_fingerprints(
        self, fingerprints: Sequence[Fingerprint], count: int = 3
    ) -> list[list[TrainingMolecule]]:
        """Do the same, given fingerprints."""
        if self.training_set is None or self.training_set.molecules is None:
            raise InputError(
                "the model keeps no training molecules; train with --keep-training-molecules"
            )
        if count < 1:
            raise InputError(f"count: got {count}, expected a whole number of at least 1")
        molecules, known = self.training_set.molecules, self._calibrated().molecules
        return molecules.nearest(fingerprints, count, known, self.config.tasks)

    def _calibrated(self) -> Uncertainty:
        if self.uncertainty is None:
            raise InputError("the model is not calibrated; call MolAttn.calibrate first")
        return self.uncertainty

    def inputs_remark(self) -> str:
        """Return whether the installed versions calculate the inputs of the training, as a line.

        It is empty if the model was trained with the installed versions of RDKit and molattn, or
        does not know. Otherwise the inputs of a few molecules are compared with those of the
        training.
        """
        return "" if self.reference_inputs is None else self.reference_inputs.remark(self.config)

    # Saving and loading: huggingface_hub's save_pretrained, from_pretrained, push_to_hub.

    def generate_model_card(
        self, *args: Any, scores: Optional[Mapping[str, str]] = None, **kwargs: Any
    ) -> ModelCard:
        """Return the README of the saved model, which lists the predicted properties.

        Args:
            args: Passed to huggingface_hub, as are ``kwargs``.
            scores: For each task by name, its test scores as text.
            kwargs: Values of other placeholders of the template.
        """
        lines = []
        for task in self.config.tasks:
            facts = (task.unit, task.kind, ", ".join(task.classes), (scores or {}).get(task.name))
            text = f"`{task.name}`: {'; '.join(fact for fact in facts if fact)}"
            lines.append(f"- {' '.join(text.split())}")
        return super().generate_model_card(*args, properties="\n".join(lines), **kwargs)

    def to_files(self, folder: Path) -> artefact.ModelFiles:
        """Return the files of the model, as they are to be written to a folder."""
        others = {} if self.uncertainty is None else self.uncertainty.to_files()
        if self.gaussian_process is not None:
            others[artefact.GAUSSIAN_PROCESS_FILE] = self.gaussian_process.to_bytes()
        if self.training_set is not None:
            others |= self.training_set.to_files(self.config.tasks)
        if self.endpoints:
            others[artefact.ENDPOINTS_FILE] = endpoints_to_bytes(self.endpoints)
        if self.reference_inputs is not None:
            others[artefact.INPUTS_FILE] = self.reference_inputs.to_bytes()
        config, weights = self.config.to_dict(), self.state_dict()
        return artefact.ModelFiles.pack(folder, config, weights, others)

    def save_pretrained(self, save_directory: Union[str, Path], **hub_options: Any) -> Any:
        """Write the model to a folder, in place of another model in it; other files stay.

        If this is interrupted, the folder holds the previous model or this one.

        Raises:
            InputError: The folder cannot be created.
            OSError: Names a file that cannot be written.
        """
        # Before huggingface_hub removes the previous config.json.
        self.to_files(Path(save_directory)).stage()
        return super().save_pretrained(save_directory, **hub_options)

    def _save_pretrained(self, save_directory: Path) -> None:
        artefact.finish_saving(save_directory)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: Union[str, Path],
        *,
        encoder: Optional[nn.Module] = None,
        readout: Optional[nn.Module] = None,
        head: Optional[nn.Module] = None,
        **hub_options: Any,
    ) -> "MolAttn":
        """Load a packaged model, one from a folder, or one from the Hugging Face Hub.

        Args:
            pretrained_model_name_or_path: As for :func:`molattn.model.artefact.find_model`: the
                name of a model of the package, a folder that ``save_pretrained`` wrote, a run's
                folder, or the name ``owner/model`` of one on the hub.
            encoder: An encoder like the one passed to the saved model, if it had one of your own;
                its weights are replaced.
            readout: The same for the readout.
            head: The same for the head.
            hub_options: Passed to ``huggingface_hub.snapshot_download`` (``revision``, ...).

        Raises:
            InputError: No such model, a missing or damaged file, or parts other than those that the
                model was saved with.
        """
        folder = artefact.find_model(pretrained_model_name_or_path, **hub_options)
        files = artefact.ModelFiles.read(folder)
        files.check()
        return cls.from_files(files, encoder=encoder, readout=readout, head=head)

    @classmethod
    def from_files(cls, files: artefact.ModelFiles, **parts: Optional[nn.Module]) -> "MolAttn":
        """Make a model of its files.

        ``parts`` are those of :meth:`from_pretrained`.

        Raises:
            InputError: As :meth:`from_pretrained`.
        """
        file, content, weights = files.folder / artefact.CONFIG_FILE, files.config, files.weights
        with _config_errors(file):
            config = MolAttnConfig.from_dict(content)
            if not config.custom_parts and (given := _classes(parts)):
                raise InputError(
                    f"got {_listed(given)}, but the model was saved without custom parts"
                )
        for name in (*_EMBEDDINGS[:1], "feature_mean", "target_mean"):
            if name not in weights or not weights[name].dim():
                weights_file = files.folder / artefact.WEIGHTS_FILE
                raise InputError(f"{weights_file}: missing weight {name!r}")
        with _config_errors(file):
            _check_sizes(config, weights)  # before memory of these sizes is allocated
            with _InitialZeros():
                model = cls(config, **parts)
        for place, net in enumerate(model._networks):
            if f"nets.{place}.projection" in weights:
                net.make_projection()
        files.check_weights(model.state_dict())
        model.load_state_dict(weights)
        model.uncertainty = Uncertainty.from_files(files, model.config.tasks)
        known = None if model.uncertainty is None else model.uncertainty.molecules
        model.training_set = TrainingSet.from_files(files, config.tasks, known)
        model.endpoints = endpoints_from_files(files, config.tasks)
        model.reference_inputs = ReferenceInputs.from_files(files)
        if (content := files.content.get(artefact.GAUSSIAN_PROCESS_FILE)) is not None:
            path = files.folder / artefact.GAUSSIAN_PROCESS_FILE
            model.gaussian_process = GaussianProcessHead.from_bytes(
                content, path, config, model.embedding_width()
            )
        return model.eval()


def _classes(parts: Mapping[str, Optional[nn.Module]]) -> dict[str, str]:
    return {name: type(part).__name__ for name, part in parts.items() if part is not None}


class _InitialZeros(TorchFunctionMode):
    """Replaces random initial weights, within the block and in this thread.

    Drawing them would move the global generators, from which another thread may draw to train.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        name, kwargs = getattr(function, "__name__", ""), kwargs or {}
        if name.endswith(("uniform_", "normal_")):
            return nn.init.zeros_(args[0] if args else kwargs["tensor"])
        return (torch.zeros if name in ("rand", "randn") else function)(*args, **kwargs)


@contextmanager
def _config_errors(file: Path) -> Iterator[None]:
    """Raise what a configuration causes as an error that names its file."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{file}: {in_python(str(error))}") from error
    except (
        TypeError,
        ValueError,
        LookupError,
        AttributeError,
        OverflowError,
        RuntimeError,
    ) as error:
        raise InputError(f"{file}: not a valid configuration: {error}") from error


_EMBEDDINGS = [f"nets.0.{kind}_embedding.weight" for kind in ("atom", "pair")]


def _check_sizes(config: MolAttnConfig, weights: Mapping[str, Tensor]) -> None:
    """Check the sizes that determine how much memory a model takes against its weights.

    Raises:
        InputError: A size that the weights do not have.
    """
    network, places = config.network, [name.split(".") for name in weights]
    embedding, pair_embedding = _EMBEDDINGS
    width = weights[embedding].size(-1)
    sizes = {
        "members": (config.members, len({place[1] for place in places if place[0] == "nets"})),
        "width": (network.width, width),
        "extra features": (config.num_numbers, len(weights["feature_mean"])),
        "tasks": (len(config.tasks), len(weights["target_mean"])),
    }
    if pair_embedding in weights:
        sizes["edge_width"] = (network.edge_width, weights[pair_embedding].size(-1))
    if "encoder" not in dict(config.custom_parts):
        blocks = {tuple(place[:5]) for place in places if place[1:4] == ["0", "encoder", "blocks"]}
        sizes["layers"] = (network.layers, len(blocks))
    for name, (got, expected) in sizes.items():
        if got != expected:
            raise InputError(
                f"{name}: got {quoted(got)}, but {artefact.WEIGHTS_FILE} has weights for {expected}"
            )
    outputs = len(config.output_names)
    head = sum(weights[name].numel() for name in weights if name.startswith("nets.0.head."))
    if "head" not in dict(config.custom_parts) and outputs > head:  # each has a weight
        raise InputError(f"outputs: got {outputs}, expected at most {head}")
    if "encoder" in dict(config.custom_parts):  # which has heads of its own
        return
    most = width  # heads that each have a part of it
    if not COMBINES[network.combine].splits_width:  # each has weights [width, width]
        most = sum(weight.numel() for weight in weights.values()) // width**2
    if network.heads > most:
        raise InputError(f"heads: got {network.heads}, expected at most {most}")


def _listed(classes: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={kind}(...)" for name, kind in classes.items()) or "none"
