"""Network: from a batch of molecules to outputs, in scaled units and logits."""

from typing import Optional, Union

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_dense_batch

from molattn.chem import Featurizer
from molattn.config import Freeze
from molattn.errors import InputError
from molattn.graph import CodedEdges, MoleculeBatch
from molattn.model.config import MolAttnConfig
from molattn.nn.cross_attention import CrossAttention
from molattn.nn.embedding import CodeEmbedding, FixedPairEmbedding, PairEmbedding
from molattn.nn.encoder import Encoder
from molattn.nn.prediction_head import HEADS
from molattn.nn.readout import Readout
from molattn.nn.registry import LAYERS, layer_options

__all__ = ["Network"]


class Network(nn.Module):
    """Embedded codes, residual attention blocks, a readout over atoms, and a head of all tasks.

    A second molecule goes through the same blocks and readout. It joins the first at the head, with
    ``partner="cross_attention"`` after the atoms of each have attended to those of the other.

    It knows no units: :class:`molattn.MolAttn` scales what goes in and comes out, of one network or
    of several.

    Args:
        config: All options; the number of members is of no account here.
    """

    def __init__(self, config: MolAttnConfig) -> None:
        super().__init__()
        net, seen = config.network, config.featurizer
        layer = LAYERS[net.layer]
        self.self_loops = net.self_loops
        self.bonds_only = net.pairs == "bonds"
        self._frozen: list[nn.Module] = []
        self.atom_embedding = CodeEmbedding(seen.atom_sizes, net.width)
        pairs = torch.tensor(seen.pair_table), seen.pair_sizes
        seen_as = None if net.distances else _without_distances(seen)
        if layer.edge_columns:
            fixed = _distance_and_bond(seen)
            self.pair_embedding = FixedPairEmbedding(*pairs, *fixed, seen_as=seen_as)
        else:
            self.pair_embedding = PairEmbedding(*pairs, net.edge_width, seen_as=seen_as)

        def make_conv() -> nn.Module:
            return layer.make(
                net.width,
                net.width,
                net.heads,
                edge_dim=self.pair_width,
                root_weight=False,  # the residual branch carries the receiver itself
                **layer_options(net),
            )

        self.encoder = Encoder(make_conv, net.layers, net.width, dropout=net.dropout)
        self.readout = Readout(net.readout, net.width)
        self.cross: Optional[nn.ModuleList] = None
        if config.has_partner and net.partner == "cross_attention":
            self.cross = nn.ModuleList(  # to the first molecule, and to the second
                CrossAttention(
                    net.width,
                    net.heads,
                    score=net.score,
                    combine=net.combine,
                    dropout=net.dropout,
                    attention_dropout=net.attention_dropout,
                )
                for _ in range(2)
            )
        self.molecules = 2 if config.has_partner else 1
        self.head = HEADS[net.head](
            self.molecule_width,
            config.num_numbers,
            net.width,
            len(config.output_names),
            net.head_dropout,
        )

    @property
    def atom_width(self) -> int:
        """Width of what :meth:`encode_atoms` gives."""
        return self.encoder.norm.normalized_shape[0]

    @property
    def pair_width(self) -> int:
        """Width of what the encoder reads of a pair."""
        return self.pair_embedding.vectors.size(1)

    @property
    def molecule_width(self) -> int:
        """Width of what :meth:`encode` gives."""
        return self.readout.out_channels * self.molecules

    def forward(
        self, batch: Union[MoleculeBatch, Data], features: Optional[Tensor] = None
    ) -> Tensor:
        """Predict in scaled units and logits, ``[num_graphs, num_outputs]``.

        Args:
            batch: As :meth:`encode` takes it.
            features: Further numbers of each molecule ``[num_graphs, config.num_numbers]``, scaled.
        """
        molecules = self.encode(batch)
        # A head of one's own need not know of numbers where there are none.
        return self.head(molecules) if features is None else self.head(molecules, features)

    def encode(self, batch: Union[MoleculeBatch, Data]) -> Tensor:
        """Represent each molecule, ``[num_graphs, molecule_width]``: what the readout gives.

        Where there is a second molecule, both follow one another.

        Args:
            batch: From :meth:`molattn.MolAttn.collate`, or a PyG ``Data`` or ``Batch`` of
                :func:`molattn.from_smiles` (made with ``self_loops`` as in the config). With
                ``pairs="bonds"`` its other pairs are left out; they need not be there.

        Raises:
            ValueError: A graph that does not have all pairs of atoms, or a batch with more of them
                than the config has.
        """
        x, index = self.encode_atoms(batch)
        count = batch.num_graphs if isinstance(batch, (MoleculeBatch, Batch)) else 1
        partners, places = getattr(batch, "partners", None), getattr(batch, "partner_index", None)
        if partners is None or places is None:
            return self.readout(x, index, count)
        y, of_partner = self.encode_atoms(partners)
        if self.cross is None:
            second = self.readout(y, of_partner, partners.num_graphs)[places]
            return torch.cat([self.readout(x, index, count), second], dim=-1)
        x, x_mask = to_dense_batch(x, index, batch_size=count)
        y, y_mask = to_dense_batch(y, of_partner, batch_size=partners.num_graphs)
        y, y_mask = y[places], y_mask[places]
        to_first, to_second = self.cross
        both = ((to_first(x, y, y_mask), x_mask), (to_second(y, x, x_mask), y_mask))
        return torch.cat([self.readout(z[m], m.nonzero()[:, 0], count) for z, m in both], dim=-1)

    def encode_atoms(self, batch: Union[MoleculeBatch, Data]) -> tuple[Tensor, Tensor]:
        """Represent each atom, ``[N, atom_width]``, and say of which molecule, ``int64 [N]``.

        Second molecules have no part in it.

        Args:
            batch: As :meth:`encode` takes it.

        Raises:
            ValueError: As :meth:`encode`.
        """
        x = self.atom_embedding(batch.x)
        if isinstance(batch, MoleculeBatch):
            graph = batch.edge_index
            if self.bonds_only and graph.kept is None:
                raise ValueError(
                    "batch: got edges between all atoms, expected bonds alone, as MolAttn.collate "
                    "makes with pairs='bonds'"
                )
            if batch.edge_attr.is_floating_point():
                edges = self.pair_embedding(batch.edge_attr)
            else:
                table = self.pair_embedding(batch.pair_codes)
                edges = CodedEdges(batch.edge_attr.long(), table)
            return graph.rows_to_nodes(self.encoder(x, graph, edges)), graph.batch
        edge_index, codes = self.edges(batch.edge_index, batch.edge_attr)
        x = self.encoder(x, edge_index, self.pair_embedding(codes))
        index = x.new_zeros(x.size(0), dtype=torch.long)
        index = index if batch.batch is None else batch.batch
        self._check_pairs(edge_index, index)
        return x, index

    def edges(
        self, edge_index: Optional[Tensor], codes: Optional[Tensor]
    ) -> tuple[Optional[Tensor], Optional[Tensor]]:
        """Take the edges that the network reads from all those of a PyG graph.

        Args:
            edge_index: Pairs of atoms, ``int64 [2, E]``.
            codes: Of each, joint ``[E]`` or of each component ``[E, P]``. Where they are amounts of
                codes, which may lie between a bond and none, all edges stay.

        Returns:
            Both, less what is left out.
        """
        if not self.bonds_only or edge_index is None or codes is None or codes.is_floating_point():
            return edge_index, codes
        bond = (self.pair_embedding.table[codes.long()] if codes.dim() == 1 else codes)[:, 0]
        kept = (bond > 0) | (edge_index[0] == edge_index[1])
        # Where nothing is left out, the very tensor: who records weights knows the graph by it.
        return (edge_index, codes) if kept.all() else (edge_index[:, kept], codes[kept])

    def freeze(self, what: Union[int, Freeze]) -> None:
        """Keep some weights as they are; what is frozen leaves out dropout in training too.

        Args:
            what: ``embeddings``, these and so many of the first blocks, these and the whole
                ``encoder``, or ``none``, which undoes any other.

        Raises:
            InputError: More blocks than there are.
        """
        embeddings = [self.atom_embedding, self.pair_embedding]
        parts = {"none": [], "embeddings": embeddings, "encoder": [*embeddings, self.encoder]}
        if isinstance(what, int):
            if what > len(self.encoder.blocks):
                raise InputError(
                    f"--freeze: got {what}, expected at most the {len(self.encoder.blocks)} blocks "
                    "of the network"
                )
            self._frozen = [*embeddings, *self.encoder.blocks[:what]]
        else:
            self._frozen = parts[what]
        self.requires_grad_(True)
        for part in self._frozen:
            part.requires_grad_(False)
        self.train(self.training)

    def train(self, mode: bool = True) -> "Network":
        """Set training or evaluation mode; what is frozen stays in the latter."""
        super().train(mode)
        for part in self._frozen:
            part.eval()
        return self

    def _check_pairs(self, edge_index: Optional[Tensor], index: Tensor) -> None:
        """Refuse graphs that are not complete, or complete in another way than the model's."""
        if edge_index is None:
            raise ValueError("edge_index: got None, expected all ordered pairs of each molecule")
        if torch.compiler.is_compiling():
            return
        loops = self.self_loops
        sizes = torch.bincount(index)
        if self.bonds_only:
            got, expected = int((edge_index[0] == edge_index[1]).sum()), len(index) * loops
            if got != expected:
                raise ValueError(
                    f"edge_index: got {got} self loops, expected {expected}, as "
                    f"molattn.from_smiles(..., self_loops={loops}) makes"
                )
            return
        expected = int((sizes * (sizes if loops else sizes - 1)).sum())
        if edge_index.size(1) != expected:
            raise ValueError(
                f"edge_index: got {edge_index.size(1)} edges, expected {expected}: all ordered "
                f"pairs of each molecule, as molattn.from_smiles(..., self_loops={loops}) makes"
            )


def _distance_and_bond(featurizer: Featurizer) -> tuple[Tensor, Tensor]:
    """What each component code of a pair adds to its distance and bond, and what it is added to.

    The distance is in bonds; in another fragment an atom is one farther than the farthest. The bond
    is 1 for bonded pairs and an atom with itself.

    Returns:
        ``[sum(pair_sizes), 2]`` and ``[2]``.
    """
    bonds, distances = featurizer.pair_sizes[0], featurizer.pair_sizes[-1]
    values = torch.zeros(sum(featurizer.pair_sizes), 2)
    values[1:bonds, 1] = 1.0
    values[-distances:, 0] = torch.arange(distances) - (distances - 1.0)
    values[-distances, 1] = 1.0
    return values, torch.tensor([distances - 1.0, 0.0])


def _without_distances(featurizer: Featurizer) -> Tensor:
    """Read every distance of more than a bond as that of another fragment, the last."""
    codes = torch.arange(sum(featurizer.pair_sizes))
    codes[-featurizer.pair_sizes[-1] + min(2, featurizer.max_distance) :] = codes[-1].clone()
    return codes
