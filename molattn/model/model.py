"""MolAttn: a molecular property predictor, from one frozen config."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np
import torch
from huggingface_hub import ModelHubMixin
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch_geometric.data import Data

from molattn.chem.descriptors import DescriptorCalculator
from molattn.chem.reader import MoleculeReader
from molattn.config import Freeze
from molattn.errors import InputError, SmilesError
from molattn.graph import MoleculeBatch, collate
from molattn.model import artefact
from molattn.model.config import MolAttnConfig
from molattn.model.extra_features import given_numbers, joined_numbers, number_type, scaled_numbers
from molattn.model.network import Network
from molattn.model.outputs import in_units, mean_of_members, set_scaling
from molattn.model.uncertainty.mixin import Calibrated
from molattn.model.uncertainty.model_uncertainty import Uncertainty, save_uncertainty
from molattn.record import MoleculeRecord

__all__ = ["MolAttn", "MolAttnConfig"]


class MolAttn(
    Calibrated,
    nn.Module,
    ModelHubMixin,
    library_name="molattn",
    tags=["chemistry"],
    model_card_template=artefact.MODEL_CARD,
):
    """Attention over all atom pairs of a molecule, and a prediction of its properties.

    Its networks (``nets``) give outputs, which it brings into the targets' own units and into
    probabilities. One of a single network is what training makes; :meth:`ensemble` joins several.

    Args:
        config: All options.

    Example:
        >>> model = MolAttn(MolAttnConfig(tasks=("logS",)))
        >>> model.predict(["CCO", "c1ccccc1"]).shape
        (2, 1)
    """

    target_mean: Tensor
    target_scale: Tensor
    feature_mean: Tensor
    feature_scale: Tensor

    def __init__(self, config: MolAttnConfig) -> None:
        super().__init__()
        self.config = config
        self.nets = nn.ModuleList(Network(config) for _ in range(config.members))
        for name, size in (("target", len(config.tasks)), ("feature", config.num_numbers)):
            self.register_buffer(f"{name}_mean", torch.zeros(size, dtype=number_type()))
            self.register_buffer(f"{name}_scale", torch.ones(size, dtype=number_type()))

    @classmethod
    def ensemble(cls, models: Sequence["MolAttn"]) -> "MolAttn":
        """Join trained models into one, which predicts the mean of what each of them predicts.

        It is a model as any other: saved, loaded and used in the same way. The members of an
        ensemble among the models become members of the new one. Weights are copied.

        Args:
            models: Models of one config (their number of members aside) and one scaling, such as
                come of other seeds on the same rows.

        Returns:
            The ensemble, in evaluation mode, on the first model's device.

        Raises:
            InputError: No model, or one that differs from the first; says in what.
        """
        if not models:
            raise InputError("ensemble: got no model, expected one or more")
        for number, other in enumerate(models[1:], start=2):
            if difference := models[0]._difference(other):
                raise InputError(
                    f"ensemble: model {number} differs from model 1 in {difference}; expected "
                    "members of the same tasks, network, featurizer, features and scaling"
                )
        nets = [net for model in models for net in model.nets]
        joined = copy.deepcopy(models[0])
        joined.config = replace(joined.config, members=len(nets))
        joined.uncertainty = None  # another model's errors
        joined.nets = nn.ModuleList(copy.deepcopy(net).to(joined._weight.device) for net in nets)
        return joined.eval()

    def _difference(self, other: "MolAttn") -> str:
        """Name the first thing that sets two models apart, besides weights and members."""
        if difference := self.config.difference(other.config):
            return difference
        for name, mine in self.named_buffers(recurse=False):
            if not torch.equal(mine.cpu().float(), other.get_buffer(name).cpu().float()):
                return f"the scaling ({name})"
        return ""

    def forward(
        self, batch: Union[MoleculeBatch, Data], features: Optional[Tensor] = None
    ) -> Tensor:
        """Predict in scaled units and logits, ``[num_graphs, num_outputs]``.

        Of several members this is what :meth:`unscale` turns into the mean of their predictions:
        the mean of regressions, and the logits of the mean probabilities of classes.

        Args:
            batch: From :meth:`collate`, or a PyG ``Data`` or ``Batch`` of
                :func:`molattn.from_smiles` (made with ``self_loops`` as in the config).
            features: Further numbers of each molecule ``[num_graphs, num_features]``, as many as
                the config names and in its order and their own units.

        Raises:
            ValueError: Features of another shape, or none where the config names some; a graph
                that does not have all pairs of atoms.
        """
        outputs = self.member_outputs(batch, features)
        return outputs[0] if len(self.nets) == 1 else mean_of_members(outputs, self.config.tasks)

    def member_outputs(
        self, batch: Union[MoleculeBatch, Data], features: Optional[Tensor] = None
    ) -> Tensor:
        """Predict by each member, in scaled units and logits, ``[members, num_graphs, outputs]``.

        Args:
            batch: As :meth:`forward` takes it.
            features: Likewise.
        """
        numbers = joined_numbers(batch, features, self.config)
        if numbers is not None:
            scales, given = (self.feature_mean, self.feature_scale), len(self.config.features)
            numbers = scaled_numbers(numbers, *scales, given).to(self._weight.dtype)
        return torch.stack([net(batch, numbers) for net in self.nets])

    def freeze(self, what: Union[int, Freeze]) -> None:
        """Keep some weights of each network; see :meth:`molattn.model.network.Network.freeze`.

        Args:
            what: ``none``, ``embeddings``, ``encoder`` or a number of blocks.
        """
        for net in self._networks:
            net.freeze(what)

    # Scaling.

    def set_target_scaling(self, mean: ArrayLike, scale: ArrayLike) -> None:
        """Keep the training targets' mean and standard deviation, ``[num_tasks]`` each.

        What the model knew of its errors it knows no more.

        Raises:
            ValueError: Wrong number of values, a value that is not finite, a scale that is not
                positive, or anything but mean 0 and scale 1 for a classification.
        """
        self.uncertainty = None  # of the former scaling, and of the weights that go with it
        mean, scale = set_scaling("target", self.target_mean, mean, self.target_scale, scale)
        for task, m, s in zip(self.config.tasks, mean, scale, strict=True):
            if task.kind != "regression" and (m, s) != (0.0, 1.0):
                raise ValueError(f"target scaling of {task.name!r}: got {m}, {s}, expected 0, 1")

    def set_feature_scaling(self, mean: ArrayLike, scale: ArrayLike) -> None:
        """Keep the mean and standard deviation in training of all numbers that join the readout.

        Those given, then those calculated of each molecule: ``[config.num_numbers]`` each, see
        :func:`molattn.model.extra_features.number_scaling`.

        Raises:
            ValueError: As :meth:`set_target_scaling`.
        """
        set_scaling("feature", self.feature_mean, mean, self.feature_scale, scale)

    def scale(self, targets: Tensor) -> Tensor:
        """Labels ``[n, num_tasks]`` in scaled units; places of classes and NaN stay as they are."""
        return ((targets - self.target_mean) / self.target_scale).to(self._weight.dtype)

    def unscale(self, prediction: Tensor) -> Tensor:
        """What :meth:`forward` gives, in the targets' own units and as probabilities."""
        return in_units(prediction, self.config.tasks, self.target_mean, self.target_scale)

    # Molecules.

    def featurize(self, smiles: str, partner: Optional[str] = None) -> MoleculeRecord:
        """Turn a SMILES into a compact molecule, with all that the model reads of it.

        Args:
            smiles: The molecule.
            partner: The second molecule, where the model reads one.

        Raises:
            SmilesError: A text that is not a molecule; says why.
            ValueError: A second molecule where the model reads none, or none where it does.
        """
        partners = None if partner is None else [partner]
        self._check_partners(partners)
        record = next(self._reader(self.config.calculator)([smiles], partners))
        if isinstance(record, SmilesError):
            raise record
        return record

    def _reader(self, calculator: Optional[DescriptorCalculator] = None) -> MoleculeReader:
        return MoleculeReader(self.config.featurizer, calculator)

    def _check_partners(self, partners: Optional[Sequence[str]]) -> None:
        if (partners is not None) != self.config.has_partner:
            got, expected = ("none", "one for each molecule")[:: 1 if partners is None else -1]
            raise ValueError(f"partners: got {got}, expected {expected}")

    def collate(self, records: Sequence[MoleculeRecord]) -> MoleculeBatch:
        """Lay molecules out as one batch."""
        loops, edge_codes = self.config.network.self_loops, self.config.edge_codes
        return collate(records, self_loops=loops, edge_codes=edge_codes)

    @torch.inference_mode()
    def predict_records(
        self,
        records: Sequence[MoleculeRecord],
        batch_size: int = 64,
        *,
        features: Optional[ArrayLike] = None,
        members: bool = False,
    ) -> NDArray[np.float64]:
        """Predict compact molecules, ``[n, num_outputs]`` in the order of ``config.output_names``.

        Regressions are in the targets' own units, classifications probabilities, calibrated if the
        model has been. Of an ensemble it is the mean of its members' predictions.

        Args:
            records: n molecules.
            batch_size: How many of them at once.
            features: Further numbers ``[n, num_features]``, if the config names any.
            members: Return what each member predicts instead, ``[members, n, num_outputs]``,
                uncalibrated.

        Raises:
            ValueError: Features of another shape, or that are not finite.
        """
        given = given_numbers(features, len(records), self.config)
        parts = []
        with self._evaluating():
            for some, batch in self._batches(records, batch_size):
                extra = None if given is None else given[some].to(self._weight.device)
                parts.append(self.unscale(self.member_outputs(batch, extra).cpu().double()))
        nothing = torch.zeros(len(self.nets), 0, len(self.config.output_names)).double()
        found = torch.cat([nothing, *parts], dim=1).numpy()
        return found if members else self._calibrated_mean(found)

    def predict(
        self,
        smiles: Sequence[str],
        batch_size: int = 64,
        *,
        partners: Optional[Sequence[str]] = None,
        features: Optional[ArrayLike] = None,
        members: bool = False,
    ) -> NDArray[np.float64]:
        """Predict SMILES, ``[n, num_outputs]``; see :meth:`predict_records`.

        Descriptors and fingerprints that the model reads are calculated.

        Args:
            smiles: n molecules.
            batch_size: How many of them at once.
            partners: The second molecule of each, such as its solvent, where the model reads one.
            features: Further numbers ``[n, len(config.features)]``, if the config names any.
            members: Return what each member predicts instead.

        Raises:
            SmilesError: A text that is not a molecule; says which and why.
            TypeError: One text in place of a list of them.
            ValueError: Partners where the model reads none, none where it does, or another number
                of them.
        """
        self._check_partners(partners)
        records = self._reader(self.config.calculator).all(smiles, partners)
        return self.predict_records(records, batch_size, features=features, members=members)

    def embedding_width(self, *, atoms: bool = False) -> int:
        """Return the width of what :meth:`embed` gives."""
        return sum(net.atom_width if atoms else net.molecule_width for net in self._networks)

    @torch.inference_mode()
    def embed_records(
        self, records: Sequence[MoleculeRecord], batch_size: int = 64, *, atoms: bool = False
    ) -> NDArray[np.float32]:
        """Embed compact molecules; see :meth:`embed`."""
        parts = [torch.zeros(0, self.embedding_width(atoms=atoms))]
        with self._evaluating():
            for _, batch in self._batches(records, batch_size):
                of_nets = [
                    net.encode_atoms(batch)[0] if atoms else net.encode(batch)
                    for net in self._networks
                ]
                parts.append(torch.cat(of_nets, dim=-1).float().cpu())
        return torch.cat(parts).numpy()

    def embed(
        self,
        smiles: Sequence[str],
        batch_size: int = 64,
        *,
        partners: Optional[Sequence[str]] = None,
        atoms: bool = False,
    ) -> NDArray[np.float32]:
        """Represent molecules by the vectors that the head predicts from, ``[n, width]``.

        It is what the readout makes of the atoms: further features of the molecule have no part in
        it. Of an ensemble the members' vectors stand beside each other: each member learned
        coordinates of its own, whose mean would mean nothing.

        Args:
            smiles: n molecules.
            batch_size: How many of them at once.
            partners: The second molecule of each, where the model reads one; its vector follows.
            atoms: Return the vectors of the atoms before the readout, molecule after molecule,
                ``[total number of atoms, width]``; of second molecules there are none.

        Raises:
            SmilesError: A text that is not a molecule; says which and why.
            TypeError: One text in place of a list of them.

        Example:
            >>> model = MolAttn(MolAttnConfig(tasks=("logS",)))
            >>> model.embed(["CCO", "C"]).shape, model.embed(["CCO", "C"], atoms=True).shape
            ((2, 256), (4, 128))
        """
        self._check_partners(partners)
        records = self._reader().all(smiles, partners)
        return self.embed_records(records, batch_size, atoms=atoms)

    def _batches(
        self, records: Sequence[MoleculeRecord], size: int
    ) -> Iterator[tuple[slice, MoleculeBatch]]:
        for start in range(0, len(records), size):
            some = slice(start, start + size)
            yield some, self.collate(records[some]).to(self._weight.device)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(training)

    @property
    def _networks(self) -> list[Network]:
        return [net for net in self.nets if isinstance(net, Network)]

    @property
    def _weight(self) -> Tensor:
        return next(self.parameters())

    # Saving and loading: huggingface_hub's save_pretrained, from_pretrained, push_to_hub.

    def _save_pretrained(self, save_directory: Path) -> None:
        save_uncertainty(None, save_directory)  # of other weights, should this be interrupted
        artefact.write_artefact(save_directory, self.config.to_dict(), self.state_dict())
        save_uncertainty(self.uncertainty, save_directory)

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: Union[str, Path], **hub_options: Any
    ) -> "MolAttn":
        """Load a model of the package, from a folder, or by its name from the Hugging Face hub.

        Args:
            pretrained_model_name_or_path: As :func:`molattn.model.artefact.find_model` takes it: the name
                of a model of the package, a folder that ``save_pretrained`` wrote, a run's folder,
                or the name ``owner/model`` of one on the hub.
            hub_options: Passed to ``huggingface_hub.snapshot_download`` (``revision``, ...).

        Raises:
            InputError: No such folder or hub name, or files that are missing or damaged.
        """
        folder = artefact.find_model(pretrained_model_name_or_path, **hub_options)
        config = artefact.read_config(folder)
        try:
            model = cls(MolAttnConfig.from_dict(config))
        except (TypeError, ValueError, KeyError, AttributeError, RuntimeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{folder / artefact.CONFIG_FILE}: no model fits it: {error}"
            ) from error
        model.load_state_dict(artefact.read_weights(folder, model.state_dict()))
        model.uncertainty = Uncertainty.load(folder, model.config.tasks)
        return model.eval()
