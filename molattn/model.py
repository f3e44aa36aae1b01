"""MolAttn: a molecular property predictor, from one frozen config."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np
import torch
from huggingface_hub import ModelHubMixin, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from . import artefact
from .chem import featurize_smiles, parse_smiles
from .errors import InputError, SmilesError, quoted
from .graph import CodedEdges, MoleculeBatch, collate
from .model_config import MolAttnConfig
from .nn import EdgeAttentionConv
from .nn.embedding import CodeEmbedding, PairEmbedding
from .nn.encoder import Encoder
from .nn.readout import Readout
from .record import MoleculeRecord
from .task import output_slices

__all__ = ["MolAttn", "MolAttnConfig"]

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


_MODEL_CARD = """---
{{ card_data }}
---
A molecular property predictor made with molattn: attention over all atom pairs.

    from molattn import MolAttn
    model = MolAttn.from_pretrained("FOLDER")
    model.predict(["CCO"])

`config.json` holds the network's options, the features it reads and what it predicts;
`model.safetensors` its weights and the scaling of its targets.
"""


class MolAttn(
    nn.Module,
    ModelHubMixin,
    library_name="molattn",
    tags=["chemistry"],
    model_card_template=_MODEL_CARD,
):
    """Attention over all atom pairs of a molecule, and a prediction of its properties.

    Codes are embedded, encoded by residual attention blocks, read out over atoms, joined by further
    features of the molecule if there are any, and mapped to the outputs of each task.

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
        net, seen = config.architecture, config.featurizer
        self.atom_embedding = CodeEmbedding(seen.atom_sizes, net.width)
        self.pair_embedding = PairEmbedding(
            torch.tensor(seen.pair_table), seen.pair_sizes, net.edge_width
        )
        self.encoder = Encoder(self._make_conv, net.layers, net.width, dropout=net.dropout)
        self.readout = Readout(net.readout, net.width)
        self.head = nn.Sequential(
            nn.Linear(self.readout.out_channels + len(config.features), net.width),
            nn.SiLU(),
            nn.Dropout(net.dropout),
            nn.Linear(net.width, len(config.output_names)),
        )
        for name, size in (("target", len(config.tasks)), ("feature", len(config.features))):
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_scale", torch.ones(size))

    def _make_conv(self) -> nn.Module:
        net = self.config.architecture
        return EdgeAttentionConv(
            net.width,
            net.width,
            net.heads,
            edge_dim=net.edge_width,
            score=net.score,
            combine=net.combine,
            gate=net.gate,
            update_edges=net.update_edges,
            dropout=net.attention_dropout,
            root_weight=False,  # the residual branch carries the receiver itself
        )

    def forward(
        self, batch: Union[MoleculeBatch, Data], features: Optional[Tensor] = None
    ) -> Tensor:
        """Predict in scaled units and logits, ``[num_graphs, num_outputs]``.

        Args:
            batch: From :meth:`collate`, or a PyG ``Data`` or ``Batch`` of
                :func:`molattn.from_smiles` (made with ``self_loops`` as in the config).
            features: Further numbers of each molecule ``[num_graphs, num_features]``, as many as
                the config names and in its order and their own units.

        Raises:
            ValueError: Features of another shape, or none where the config names some; a graph
                that does not have all pairs of atoms.
        """
        x = self.atom_embedding(batch.x)
        if isinstance(batch, MoleculeBatch):
            graph = batch.edge_index
            edges = CodedEdges(batch.edge_attr.long(), self.pair_embedding(batch.pair_codes))
            x = graph.rows_to_nodes(self.encoder(x, graph, edges))
            index, count = graph.batch, graph.num_graphs
        else:
            x = self.encoder(x, batch.edge_index, self.pair_embedding(batch.edge_attr))
            index = x.new_zeros(x.size(0), dtype=torch.long)
            index = index if batch.batch is None else batch.batch
            count = batch.num_graphs if isinstance(batch, Batch) else 1
            self._check_pairs(batch.edge_index, index)
        molecules = self.readout(x, index, count)
        expected = (count, len(self.config.features))
        if features is None and self.config.features:
            raise ValueError(f"features: got none, expected {', '.join(self.config.features)}")
        if features is not None:
            if features.shape != expected:
                raise ValueError(f"features: got {tuple(features.shape)}, expected {expected}")
            scaled = (features - self.feature_mean) / self.feature_scale
            molecules = torch.cat([molecules, scaled.to(molecules.dtype)], dim=-1)
        return self.head(molecules)

    def _check_pairs(self, edge_index: Optional[Tensor], index: Tensor) -> None:
        """Refuse graphs that are not complete, or complete in another way than the model's."""
        if edge_index is None:
            raise ValueError("edge_index: got None, expected all ordered pairs of each molecule")
        if torch.compiler.is_compiling():
            return
        loops = self.config.architecture.self_loops
        sizes = torch.bincount(index)
        expected = int((sizes * (sizes if loops else sizes - 1)).sum())
        if edge_index.size(1) != expected:
            raise ValueError(
                f"edge_index: got {edge_index.size(1)} edges, expected {expected}: all ordered "
                f"pairs of each molecule, as molattn.from_smiles(..., self_loops={loops}) makes"
            )

    # Scaling.

    def set_target_scaling(self, mean: ArrayLike, scale: ArrayLike) -> None:
        """Keep the training targets' mean and standard deviation, ``[num_tasks]`` each.

        Raises:
            ValueError: Wrong number of values, a value that is not finite, a scale that is not
                positive, or anything but mean 0 and scale 1 for a classification.
        """
        mean, scale = _set_scaling("target", self.target_mean, mean, self.target_scale, scale)
        for task, m, s in zip(self.config.tasks, mean, scale, strict=True):
            if task.kind != "regression" and (m, s) != (0.0, 1.0):
                raise ValueError(f"target scaling of {task.name!r}: got {m}, {s}, expected 0, 1")

    def set_feature_scaling(self, mean: ArrayLike, scale: ArrayLike) -> None:
        """Keep the training features' mean and standard deviation, ``[num_features]`` each.

        Raises:
            ValueError: As :meth:`set_target_scaling`.
        """
        _set_scaling("feature", self.feature_mean, mean, self.feature_scale, scale)

    def scale(self, targets: Tensor) -> Tensor:
        """Labels ``[n, num_tasks]`` in scaled units; places of classes and NaN stay as they are."""
        return (targets - self.target_mean) / self.target_scale

    def unscale(self, prediction: Tensor) -> Tensor:
        """What :meth:`forward` gives, in the targets' own units and as probabilities."""
        parts = []
        for place, (task, part) in enumerate(
            zip(self.config.tasks, output_slices(self.config.tasks), strict=True)
        ):
            outputs = prediction[..., part]
            if task.kind == "regression":
                outputs = outputs * self.target_scale[place] + self.target_mean[place]
            elif task.kind == "binary":
                outputs = outputs.sigmoid()
            else:
                outputs = outputs.softmax(dim=-1)
            parts.append(outputs)
        return torch.cat(parts, dim=-1)

    # Molecules.

    def featurize(self, smiles: str) -> MoleculeRecord:
        """Turn a SMILES into a compact molecule.

        Raises:
            SmilesError: The text is not a molecule; says why.
        """
        return self.config.featurizer(parse_smiles(smiles))

    def collate(self, records: Sequence[MoleculeRecord]) -> MoleculeBatch:
        """Lay molecules out as one batch."""
        return collate(records, self_loops=self.config.architecture.self_loops)

    @torch.inference_mode()
    def predict_records(
        self,
        records: Sequence[MoleculeRecord],
        batch_size: int = 64,
        *,
        features: Optional[ArrayLike] = None,
    ) -> NDArray[np.float64]:
        """Predict compact molecules, ``[n, num_outputs]`` in the order of ``config.output_names``.

        Regressions are in the targets' own units, classifications probabilities.

        Args:
            records: n molecules.
            batch_size: How many of them at once.
            features: Further numbers ``[n, num_features]``, if the config names any.

        Raises:
            ValueError: Features of another shape, or that are not finite.
        """
        given = None
        if features is not None:
            given = torch.as_tensor(np.asarray(features), dtype=self.feature_mean.dtype)
            expected = (len(records), len(self.config.features))
            if given.shape != expected or not bool(given.isfinite().all()):
                raise ValueError(
                    f"features: got {tuple(given.shape)}, expected finite numbers {expected}"
                )
        training = self.training
        self.eval()
        try:
            parts = []
            for start in range(0, len(records), batch_size):
                some = slice(start, start + batch_size)
                batch = self.collate(records[some]).to(self._device)
                extra = None if given is None else given[some].to(self._device)
                parts.append(self.unscale(self(batch, extra)))
        finally:
            self.train(training)
        if not parts:
            return np.zeros((0, len(self.config.output_names)))
        return torch.cat(parts).double().cpu().numpy()

    def predict(
        self,
        smiles: Sequence[str],
        batch_size: int = 64,
        *,
        features: Optional[ArrayLike] = None,
    ) -> NDArray[np.float64]:
        """Predict SMILES, ``[n, num_outputs]``; see :meth:`predict_records`.

        Raises:
            SmilesError: A text that is not a molecule; says which and why.
            TypeError: One text in place of a list of them.
        """
        if isinstance(smiles, str):
            raise TypeError(f"smiles: got one text, expected a list: [{quoted(smiles)}]")
        records = []
        for position, result in enumerate(featurize_smiles(smiles, self.config.featurizer)):
            if isinstance(result, SmilesError):
                reason = f"{result.reason} (position {position})"
                raise SmilesError(result.smiles, result.code, reason) from result
            records.append(result)
        return self.predict_records(records, batch_size, features=features)

    @property
    def _device(self) -> torch.device:
        return self.target_mean.device

    # Saving and loading: huggingface_hub's save_pretrained, from_pretrained, push_to_hub.

    def _save_pretrained(self, save_directory: Path) -> None:
        artefact.write_artefact(save_directory, self.config.to_dict(), self.state_dict())

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: Union[str, Path], **hub_options: Any
    ) -> "MolAttn":
        """Load a model from a folder, or by its name from the Hugging Face hub.

        Args:
            pretrained_model_name_or_path: A folder that ``save_pretrained`` wrote; where there is
                no such folder, the name ``owner/model`` of one on the hub.
            hub_options: Passed to ``huggingface_hub.snapshot_download`` (``revision``, ...).

        Raises:
            InputError: No such folder or hub name, or files that are missing or damaged.
        """
        folder = Path(pretrained_model_name_or_path)
        if not folder.is_dir() and _HUB_NAME.fullmatch(str(pretrained_model_name_or_path)):
            folder = _download(str(pretrained_model_name_or_path), hub_options)
        if not (folder / artefact.CONFIG_FILE).is_file() and (folder / "model").is_dir():
            raise InputError(f"{folder}: a run folder; its model is {folder / 'model'}")
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
        return model.eval()


def _set_scaling(
    what: str, mean_buffer: Tensor, mean: ArrayLike, scale_buffer: Tensor, scale: ArrayLike
) -> tuple[list[float], list[float]]:
    values = []
    for buffer, given in ((mean_buffer, mean), (scale_buffer, scale)):
        new = torch.as_tensor(np.asarray(given), dtype=buffer.dtype)
        if new.shape != buffer.shape or not bool(new.isfinite().all()):
            raise ValueError(
                f"{what} scaling: got {new.tolist()}, expected {buffer.numel()} finite values"
            )
        values.append(new)
    if not bool((values[1] > 0).all()):
        raise ValueError(f"{what} scale: got {values[1].tolist()}, expected values > 0")
    mean_buffer.copy_(values[0])
    scale_buffer.copy_(values[1])
    return values[0].tolist(), values[1].tolist()


def _download(name: str, options: dict[str, Any]) -> Path:
    wanted = [artefact.CONFIG_FILE, artefact.WEIGHTS_FILE]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted, **options))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(
            f"{name}: no such folder, and no such model on the hub: {reason}"
        ) from error
