"""MolAttn: a molecular property predictor, from one frozen config."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Union

import numpy as np
import torch
from huggingface_hub import ModelHubMixin, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from . import artefact
from .chem import Featurizer, parse_smiles
from .config import ArchitectureConfig
from .errors import InputError, SmilesError
from .graph import CodedEdges, MoleculeBatch, collate
from .molecules import default_featurizer
from .nn import EdgeAttentionConv
from .nn.embedding import CodeEmbedding, PairEmbedding
from .nn.encoder import Encoder
from .nn.readout import Readout
from .record import MoleculeRecord
from .version import __version__

__all__ = ["MolAttn", "MolAttnConfig"]

_FORMAT = 1
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class MolAttnConfig:
    """All that a model is besides its weights.

    Args:
        targets: Names of the predicted properties.
        architecture: The network.
        featurizer: What it sees of a molecule.

    Raises:
        InputError: No target, or two of one name.
    """

    targets: tuple[str, ...]
    architecture: ArchitectureConfig = field(default_factory=ArchitectureConfig)
    featurizer: Featurizer = field(default_factory=default_featurizer)

    def __post_init__(self) -> None:
        if not self.targets or len(set(self.targets)) != len(self.targets):
            raise InputError(f"targets: got {self.targets}, expected one or more distinct names")

    def to_dict(self) -> dict[str, Any]:
        """As JSON types, with the versions that wrote it."""
        return {
            "format": _FORMAT,
            "molattn_version": __version__,
            "targets": list(self.targets),
            "architecture": asdict(self.architecture),
            "featurizer": self.featurizer.to_dict(),
        }

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> "MolAttnConfig":
        """Read what :meth:`to_dict` gave.

        Raises:
            InputError: Another format, or a key that is missing or unknown.
        """
        if config.get("format") != _FORMAT:
            raise InputError(
                f"model config: got format {config.get('format')!r} of molattn "
                f"{config.get('molattn_version')!r}, expected {_FORMAT}"
            )
        expected = {"format", "molattn_version"} | {f.name for f in fields(cls)}
        _check_keys("model config", config, expected)
        options = config["architecture"]
        _check_keys(
            "model config, architecture", options, {f.name for f in fields(ArchitectureConfig)}
        )
        return cls(
            targets=tuple(config["targets"]),
            architecture=ArchitectureConfig(**options),
            featurizer=Featurizer.from_dict(config["featurizer"]),
        )


_MODEL_CARD = """---
{{ card_data }}
---
A molecular property predictor made with molattn: attention over all atom pairs.

    from molattn import MolAttn
    model = MolAttn.from_pretrained("FOLDER")
    model.predict(["CCO"])

`config.json` holds the network's options, the features it reads and the names of its targets;
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

    Codes are embedded, encoded by residual attention blocks, read out over atoms and mapped to
    one number for each target.

    Args:
        config: All options.

    Example:
        >>> model = MolAttn(MolAttnConfig(targets=("logS",)))
        >>> model.predict(["CCO", "c1ccccc1"]).shape
        (2, 1)
    """

    target_mean: Tensor
    target_scale: Tensor

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
            nn.Linear(self.readout.out_channels, net.width),
            nn.SiLU(),
            nn.Dropout(net.dropout),
            nn.Linear(net.width, len(config.targets)),
        )
        self.register_buffer("target_mean", torch.zeros(len(config.targets)))
        self.register_buffer("target_scale", torch.ones(len(config.targets)))

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

    def forward(self, batch: Union[MoleculeBatch, Data]) -> Tensor:
        """Predict in scaled units, ``[num_graphs, num_targets]``.

        Args:
            batch: From :meth:`collate`, or a PyG ``Data`` or ``Batch`` of
                :func:`molattn.from_smiles` (made with ``self_loops`` as in the config).
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
        return self.head(self.readout(x, index, count))

    # Targets.

    def set_target_scaling(self, mean: ArrayLike, scale: ArrayLike) -> None:
        """Keep the training targets' mean and standard deviation, ``[num_targets]`` each.

        Raises:
            ValueError: Wrong number of values, or a value that is not finite and positive.
        """
        for buffer, given in ((self.target_mean, mean), (self.target_scale, scale)):
            values = torch.as_tensor(np.asarray(given), dtype=buffer.dtype)
            if values.shape != buffer.shape or not bool(values.isfinite().all()):
                raise ValueError(
                    f"target scaling: got {values.tolist()}, "
                    f"expected {buffer.numel()} finite values"
                )
            buffer.copy_(values)
        if not bool((self.target_scale > 0).all()):
            raise ValueError(f"target scale: got {self.target_scale.tolist()}, expected values > 0")

    def unscale(self, prediction: Tensor) -> Tensor:
        """Scaled predictions in the targets' own units."""
        return prediction * self.target_scale + self.target_mean

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
        self, records: Sequence[MoleculeRecord], batch_size: int = 64
    ) -> NDArray[np.float64]:
        """Predict compact molecules, ``[n, num_targets]`` in the targets' own units."""
        training = self.training
        self.eval()
        try:
            parts = [
                self.unscale(self(self.collate(records[i : i + batch_size]).to(self._device)))
                for i in range(0, len(records), batch_size)
            ]
        finally:
            self.train(training)
        if not parts:
            return np.zeros((0, len(self.config.targets)))
        return torch.cat(parts).double().cpu().numpy()

    def predict(self, smiles: Sequence[str], batch_size: int = 64) -> NDArray[np.float64]:
        """Predict SMILES, ``[n, num_targets]`` in the targets' own units.

        Raises:
            SmilesError: A text that is not a molecule; says which and why.
        """
        records = []
        for position, text in enumerate(smiles):
            try:
                records.append(self.featurize(text))
            except SmilesError as error:
                reason = f"{error.reason} (position {position})"
                raise SmilesError(error.smiles, error.code, reason) from error
        return self.predict_records(records, batch_size)

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
        model = cls(MolAttnConfig.from_dict(artefact.read_config(folder)))
        model.load_state_dict(artefact.read_weights(folder, model.state_dict()))
        return model.eval()


def _download(name: str, options: dict[str, Any]) -> Path:
    wanted = [artefact.CONFIG_FILE, artefact.WEIGHTS_FILE]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted, **options))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(
            f"{name}: no such folder, and no such model on the hub: {reason}"
        ) from error


def _check_keys(where: str, got: Mapping[str, Any], expected: set[str]) -> None:
    for name in sorted(set(got) ^ expected):
        raise InputError(f"{where}: {'unknown' if name in got else 'missing'} key {name!r}")
