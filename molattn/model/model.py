"""MolAttn: a molecular property predictor."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional, Self, Union

import numpy as np
import torch
from huggingface_hub import ModelCard, ModelHubMixin
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.data import Data

from molattn.chem.parse import Molecule
from molattn.chem.reader import Fields, MoleculeReader
from molattn.config import Freeze
from molattn.errors import InputError, SmilesError
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
from molattn.model.predictor import Predictor
from molattn.model.reference_inputs import ReferenceInputs
from molattn.model.target_transform import TargetTransform, own_units, transformed_labels
from molattn.model.training_set import TrainingMolecule, TrainingSet
from molattn.model.uncertainty.model_uncertainty import Uncertainty
from molattn.record import MoleculeRecord
from molattn.utils.devices import finish, to_device, to_host

__all__ = ["MolAttn", "MolAttnConfig"]

_SAME_SCALING = 1e-6  # largest difference, relative to the scale: rounding in single precision
_MOST_OTHERS = 2**16  # elements that a model has besides its weights


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
        # Each member has weights of its own; the first has the very modules that were given.
        self.nets = nn.ModuleList(
            Network(self.config, **(copy.deepcopy(parts) if member else parts))
            for member in range(config.members)
        )
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
            name: endpoint.without_scores() for name, endpoint in joined.endpoints.items()
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
        values = [
            torch.as_tensor(np.asarray(given), dtype=number_type()) for given in (mean, scale)
        ]
        shape = self.get_buffer(f"{what}_mean").shape
        if not all(new.shape == shape and bool(new.isfinite().all()) for new in values):
            raise ValueError(f"{what} scaling: expected {shape.numel()} finite means and scales")
        if not bool((values[1] > 0).all()):
            raise ValueError(f"{what} scale: got {values[1].tolist()}, expected values > 0")
        for task, m, s in zip(self.config.tasks, *map(Tensor.tolist, values), strict=False):
            if what == "target" and task.kind != "regression" and (m, s) != (0.0, 1.0):
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
        probabilities = class_probabilities(self._transformed(prediction), self.config.tasks)
        return own_units(probabilities, self.config.tasks, self.config.target_transforms)

    def to_transformed(self, outputs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert scaled regressions ``[..., num_outputs]`` to the transformed scale."""
        return self._transformed(torch.from_numpy(outputs)).numpy()

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
        record = next(self.reader(partners, numbers=True)([smiles], partners))
        if isinstance(record, SmilesError):
            raise record
        return record

    def reader(
        self,
        partners: Optional[Sequence[Molecule]],
        *,
        numbers: bool = False,
        fingerprint: bool = False,
    ) -> MoleculeReader:
        """Return a reader of molecules: of graphs alone, or with all that the model reads.

        Raises:
            ValueError: Second molecules that are missing or not used by the model.
        """
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

    def collate(self, records: Sequence[MoleculeRecord]) -> MoleculeBatch:
        """Collate molecules into a batch, on the CPU, laid out for the model's device."""
        return collate(
            records,
            self_loops=self.config.network.self_loops,
            edge_codes=self.config.edge_codes,
            device=self._weight.device,
        )

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

    def embedding_width(self, *, atoms: bool = False) -> int:
        """Return the width of the vectors that :meth:`embed` returns."""
        return sum(net.atom_width if atoms else net.molecule_width for net in self._networks)

    def embed_records(
        self, records: Sequence[MoleculeRecord], batch_size: int = 256, *, atoms: bool = False
    ) -> NDArray[np.float32]:
        """Embed featurized molecules; see :meth:`molattn.model.predictor.Predictor.embed`."""

        def compute(batch: MoleculeBatch, rows: slice) -> tuple[Tensor]:
            of_nets = [
                net.encode_atoms(batch)[0] if atoms else net.project(net.encode(batch))
                for net in self._networks
            ]
            return (torch.cat(of_nets, dim=-1).float(),)

        parts = self._in_batches(records, batch_size, compute)
        nothing = torch.zeros(0, self.embedding_width(atoms=atoms))
        return torch.cat([nothing, *(part for (part,) in parts)]).numpy()

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
        """Be in evaluation mode inside the block.

        Threads share a model that is in evaluation mode before, as a loaded one is.
        """
        trained = [module for module in self.modules() if module.training]
        if trained:
            self.eval()
        try:
            yield
        finally:
            for module in trained:
                module.training = True

    @property
    def _networks(self) -> list[Network]:
        return [net for net in self.nets if isinstance(net, Network)]

    @property
    def _weight(self) -> Tensor:
        return next(self.parameters())

    # Predictions.

    @property
    def predictor(self) -> Predictor:
        """Predicts with the networks, the Gaussian process and the calibration together."""
        return Predictor(self, self.gaussian_process, self.uncertainty, self.training_set)

    def predict(self, *args: Any, **options: Any) -> NDArray[np.float64]:
        """Predict molecules; see :meth:`molattn.model.predictor.Predictor.predict`."""
        return self.predictor.predict(*args, **options)

    def predict_records(self, *args: Any, **options: Any) -> NDArray[np.float64]:
        """Predict featurized molecules; see ``Predictor.predict_records``."""
        return self.predictor.predict_records(*args, **options)

    def predict_outputs(self, *args: Any, **options: Any) -> NDArray[np.float64]:
        """Predict featurized molecules with each member; see ``Predictor.predict_outputs``."""
        return self.predictor.predict_outputs(*args, **options)

    def predict_interval(
        self, *args: Any, **options: Any
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Predict intervals; see :meth:`molattn.model.predictor.Predictor.predict_interval`."""
        return self.predictor.predict_interval(*args, **options)

    def training_similarity(self, smiles: Sequence[Molecule]) -> NDArray[np.float64]:
        """Return the similarity to training molecules; see ``Predictor.training_similarity``."""
        return self.predictor.training_similarity(smiles)

    def nearest(self, *args: Any, **options: Any) -> list[list[TrainingMolecule]]:
        """Return the most similar training molecules; see ``Predictor.nearest``."""
        return self.predictor.nearest(*args, **options)

    def neighbors(self, *args: Any, **options: Any) -> dict[str, list[list[Neighbor]]]:
        """Return the training rows behind predictions; see ``Predictor.neighbors``."""
        return self.predictor.neighbors(*args, **options)

    def embed(self, *args: Any, **options: Any) -> NDArray[np.float32]:
        """Return embeddings; see :meth:`molattn.model.predictor.Predictor.embed`."""
        return self.predictor.embed(*args, **options)

    def calibrate(self, *args: Any, **options: Any) -> None:
        """Fit intervals and probabilities; see ``Predictor.calibrated``, which has the arguments.

        Training does this by itself.
        """
        self.uncertainty = self.predictor.calibrated(*args, **options)
        if self.training_set is not None:  # its molecules refer to other fingerprints
            self.training_set = replace(self.training_set, molecules=None)

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
        file, content = files.folder / artefact.CONFIG_FILE, files.config
        elements = sum(weight.numel() for weight in files.weights.values())
        with _config_errors(file), _LoadedWeights(4 * elements + _MOST_OTHERS):
            config = MolAttnConfig.from_dict(content)
            if not config.custom_parts and (given := _classes(parts)):
                raise InputError(
                    f"got {_listed(given)}, but the model was saved without custom parts"
                )
            model = cls(config, **parts)
        files.load_weights(model)
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


class _LoadedWeights(TorchFunctionMode):
    """Makes modules whose weights are loaded next, within the block and in this thread.

    Initial weights are zeros: to draw them would move the global generators, from which another
    thread may draw to train. A configuration of more elements than a file of weights has is
    refused before they take memory.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        name, kwargs = getattr(function, "__name__", ""), kwargs or {}
        if name.endswith(("uniform_", "normal_")):
            return nn.init.zeros_(args[0] if args else kwargs["tensor"])
        if name in ("empty", "zeros", "ones", "full", "rand", "randn"):
            self._most -= function(*args, **{**kwargs, "device": "meta"}).numel()
            if self._most < 0:
                raise InputError(f"more weights than {artefact.WEIGHTS_FILE} has")
        return (torch.zeros if name in ("rand", "randn") else function)(*args, **kwargs)


@contextmanager
def _config_errors(file: Path) -> Iterator[None]:
    """Raise what a configuration causes as an error that names its file."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        raise InputError(f"{file}: not a valid configuration: {error}") from error


def _listed(classes: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={kind}(...)" for name, kind in classes.items()) or "none"
