"""The network: from a batch of molecules to outputs in scaled units and logits."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.data import Batch, Data
from torch_geometric.nn.aggr import Aggregation

from molattn._torch_compat import with_tensors
from molattn.chem import Featurizer
from molattn.config import Freeze
from molattn.errors import InputError, check_one_of
from molattn.graph import CodedEdges, CompleteGraphs, MoleculeBatch
from molattn.graph.complete import join_pairs
from molattn.graph.padded import PaddedGraphs
from molattn.graph.transforms import random_walks
from molattn.model.artefact import WEIGHTS_FILE
from molattn.model.config import MolAttnConfig
from molattn.nn.attention_bias import DistanceSlopes
from molattn.nn.dense.linear import Linear
from molattn.nn.embedding import CodeEmbedding, FixedPairEmbedding, PairEmbedding
from molattn.nn.encoder import Encoder
from molattn.nn.functional import SCORES
from molattn.nn.graph_inputs import EdgeAttr, EdgeList, Edges, edge_features, edges_at, map_edges
from molattn.nn.prediction_head import PREDICTION_HEADS
from molattn.nn.readout import Readout
from molattn.nn.registry import LAYERS, is_attention_layer, layer_options
from molattn.nn.site_head import SiteHead, bond_vectors
from molattn.task import Level, count_outputs, output_slices


class Network(nn.Module):
    """Embeddings of atoms and atom pairs, an encoder, a readout over atoms, and a prediction head.

    A second molecule passes through the same encoder and readout, and its vector is concatenated to
    that of the first before the head.

    Inputs and outputs are in scaled units: :class:`molattn.MolAttn` holds one or more networks, and
    does the scaling. Its arguments are those of this class.
    """

    projection: Tensor | None

    def __init__(
        self,
        config: MolAttnConfig,
        *,
        encoder: nn.Module | None = None,
        readout: nn.Module | None = None,
        head: nn.Module | None = None,
    ) -> None:
        super().__init__()
        net = config.network
        featurizer = config.featurizer
        self.self_loops = net.self_loops
        self.farthest = net.radius and min(net.radius, featurizer.max_distance)
        self.num_outputs = len(config.output_names)
        self._frozen: list[nn.Module] = []
        # Only an encoder of complete graphs reads them as padded blocks; others get PyG's edges.
        self.reads_blocks: bool = encoder is None or getattr(encoder, "complete_graphs", False)
        self.atom_width: int = getattr(encoder, "out_channels", net.width)
        """Width of what :meth:`encode_atoms` returns."""
        self.atom_embedding = CodeEmbedding(featurizer.atom_sizes, net.width)
        pairs = torch.tensor(featurizer.pair_table), featurizer.pair_sizes
        if LAYERS[net.layer].edge_columns:
            fixed = _distance_and_bond(featurizer)
            self.pair_embedding = FixedPairEmbedding(*pairs, *fixed)
        else:
            self.pair_embedding = PairEmbedding(*pairs, net.edge_width)
        self.walk_length = net.walk_length
        widths = (net.width, net.edge_width) if self.walk_length else ()
        maps = (Linear(self.walk_length, width) for width in widths)
        self.walk_embedding = nn.ModuleList(maps)  # of atoms and of pairs
        self.encoder = self._make_encoder(config) if encoder is None else encoder
        self.reads_degree = encoder is None and LAYERS[net.layer].reads_degree
        self.bond_of_pair = FixedPairEmbedding(*pairs, _bonded(featurizer), torch.zeros(1))
        terms, constant = _distance_and_bond(featurizer)
        self.distance_of_pair = FixedPairEmbedding(*pairs, terms[:, :1], constant[:1])
        self.has_slopes = DistanceSlopes in map(type, self.encoder.modules())
        is_plain = net.layer == "edge_attention" and not (net.gate or net.update_edges)
        self.can_mask_bonds = encoder is None and is_plain and SCORES[net.score].pair is None
        self.readout = self._make_readout(net.readout if readout is None else readout)
        self.molecules = 2 if config.has_partner else 1
        self.register_buffer("projection", None)
        widths = self.molecule_width, config.num_numbers, net.width, self.num_outputs
        self.has_known_head = head is None
        if head is None and self.num_outputs:
            head = PREDICTION_HEADS[net.head](*widths, net.head_dropout)
        self.head = head
        self.levels = tuple(config.site_tasks)
        slices = zip(config.atom_tasks, output_slices(config.atom_tasks), strict=True)
        self._charges = [at.start for task, at in slices if task.name in config.charge_tasks]
        self.site_heads = self._make_site_heads(config)

    def _make_encoder(self, config: MolAttnConfig) -> Encoder:
        net = config.network
        make = partial(
            LAYERS[net.layer].make,
            net.width,
            net.width,
            net.heads,
            edge_dim=self.pair_embedding.weight.size(1),
            max_distance=config.featurizer.max_distance + 1,  # that of atoms without a path
            root_weight=False,  # the residual branch carries the receiver itself
        )
        options = layer_options(net)
        makers = {"pairs": partial(make, **options)}
        if options.get("attn_bias") == "slopes":  # 0 for bonds
            options.pop("attn_bias")
        makers["bonds"] = partial(make, **options)
        makers = {name: makers[name] for name in net.graphs}
        last = {name: partial(maker, update_edges=False) for name, maker in makers.items()}
        if config.bond_tasks:  # whose head alone reads the edges of the last block of pairs
            last.pop("pairs", None)
        more = {"dropout": net.dropout, "norm": net.norm, "graphs": net.graphs}
        return Encoder(makers, net.layers, net.width, make_last=last, **more)

    def _make_readout(self, readout: str | nn.Module) -> nn.Module:
        if isinstance(readout, str | Aggregation):
            return Readout(readout, self.atom_width)
        if not isinstance(getattr(readout, "out_channels", None), int):
            raise ValueError(
                f"readout: {type(readout).__name__} has no attribute out_channels, the width "
                "of its output"
            )
        return readout

    def _make_site_heads(self, config: MolAttnConfig) -> nn.ModuleDict:
        net = config.network
        edge_dim = self.pair_embedding.weight.size(1)
        channels = {"atom": self.atom_width, "bond": 2 * self.atom_width + edge_dim}
        heads = {
            level: SiteHead(channels[level], net.width, count_outputs(tasks), net.dropout)
            for level, tasks in config.site_tasks.items()
        }
        return nn.ModuleDict(heads)

    @property
    def molecule_width(self) -> int:
        """Width of what :meth:`encode` returns."""
        return self.readout.out_channels * self.molecules  # pyright: ignore[reportReturnType, reportOperatorIssue]

    @property
    def attention_layers(self) -> list[nn.Module]:
        """The encoder's registered attention layers, first to last; those return their weights."""

        def layers_of(module: nn.Module) -> list[nn.Module]:
            if is_attention_layer(module):
                return [module]
            return [layer for child in module.children() for layer in layers_of(child)]

        return [*dict.fromkeys(layers_of(self.encoder))]  # a layer may occur several times

    def forward(self, batch: MoleculeBatch | Data, features: Tensor | None = None) -> Tensor:
        """Predict in scaled units and logits, ``[num_graphs, num_outputs]``.

        The batch is that of :meth:`encode`, with scaled features ``[num_graphs, num_numbers]``.
        """
        return self.decode(self.encode(batch), features)

    def decode(self, molecules: Tensor, features: Tensor | None = None) -> Tensor:
        """Predict from what :meth:`encode` returns; see :meth:`forward`.

        A registered head predicts in double precision on a CPU: predictions of a rare target
        differ little, and are sums of large terms.
        """
        if self.head is None:
            return molecules.new_zeros(molecules.size(0), 0)
        # A custom head need not take features where there are none.
        inputs = (molecules,) if features is None else (molecules, features)
        in_double = self.has_known_head and not self.training and molecules.dtype is torch.float32
        if in_double and molecules.is_cpu and not torch.compiler.is_dynamo_compiling():
            head = with_tensors(self.head, lambda x: x.double() if x.is_floating_point() else x)
            out = head(*(x.double() for x in inputs)).float()
        else:
            out = self.head(*inputs)
        if out.shape != (expected := (molecules.size(0), self.num_outputs)):
            raise ValueError(f"head: got outputs {list(out.shape)}, expected {list(expected)}")
        return out

    def encode(self, batch: MoleculeBatch | Data, atoms: Tensor | None = None) -> Tensor:
        """Represent each molecule, ``[num_graphs, molecule_width]``: the output of the readout.

        The vector of a second molecule is concatenated to that of the first.

        The batch is that of :meth:`molattn.MolAttn.forward`; PyG graphs keep their edges.
        ``atoms``: the output of :meth:`encode_atoms` for a ``MoleculeBatch``, if known.
        """
        if atoms is None or not isinstance(batch, MoleculeBatch):
            x, index = self.encode_atoms(batch)
        else:
            x = atoms
            index = batch.edge_index.batch
        count = batch.num_graphs if isinstance(batch, (MoleculeBatch, Batch)) else 1
        molecules = self.readout(x, index, count)
        partners = getattr(batch, "partners", None)
        if partners is None:
            return molecules
        second = self.readout(*self.encode_atoms(partners), partners.num_graphs)
        return torch.cat([molecules, second[batch.partner_index]], dim=-1)

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        # The weights alone tell whether there is a projection.
        self.projection = None
        if state_dict.get(f"{prefix}projection") is not None:
            width = self.molecule_width // self.molecules
            self.projection = self.atom_embedding.weight.new_zeros(width, width)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)  # pyright: ignore[reportArgumentType]

    def project(self, molecules: Tensor) -> Tensor:
        """Return the embeddings of what :meth:`encode` returns: the same vectors x.

        With a ``projection`` A, ``[width, width]``, of pretraining on columns, they are x A.
        """
        if self.projection is None:
            return molecules
        return (molecules.unflatten(-1, (self.molecules, -1)) @ self.projection).flatten(-2)

    def encode_atoms(self, batch: MoleculeBatch | Data) -> tuple[Tensor, Tensor]:
        """Represent each atom of the first molecules; see :meth:`encode`.

        Returns:
            Vectors ``[N, atom_width]``, and the molecule of each atom, ``int64 [N]``.
        """
        return self.encode_graphs(batch)[:2]

    def site_head(self, level: Level) -> SiteHead:
        """The head of atoms or of bonds."""
        head = self.site_heads[level]
        assert isinstance(head, SiteHead)
        return head

    def site_vectors(
        self, batch: MoleculeBatch, atoms: Tensor, edges: EdgeAttr
    ) -> dict[Level, Tensor]:
        """Represent atoms and bonds as the heads read them, given :meth:`encode_graphs`.

        Returns:
            By level, ``atom`` or ``bond``, ``[sites, width]`` in the order of ``batch.sites``; the
            vector of a site that is not in the graph means nothing.
        """
        sites = batch.sites
        assert sites is not None
        of_level: dict[Level, Tensor] = {}
        for level in self.levels:
            vectors = atoms[sites.atoms]
            if level == "bond":
                first, second = sites.bonds.clamp(min=0)
                pairs = [(first, second), (second, first)]
                of_bonds = (self._edges_between(batch, edges, torch.stack(pair)) for pair in pairs)
                vectors = bond_vectors(atoms[first], atoms[second], *of_bonds)
            of_level[level] = vectors
        return of_level

    def predict_sites(
        self, batch: MoleculeBatch, vectors: dict[Level, Tensor]
    ) -> dict[Level, Tensor]:
        """Predict atoms and bonds in scaled units and logits, given :meth:`site_vectors`.

        Returns:
            By level ``[sites, outputs]``.
        """
        outputs: dict[Level, Tensor] = {
            level: self.site_head(level)(vectors[level]) for level in self.levels
        }
        if self._charges:
            outputs["atom"] = self._with_charges(batch, outputs["atom"])
        return outputs

    def _with_charges(self, batch: MoleculeBatch, outputs: Tensor) -> Tensor:
        """Change the values of all atoms by the same, so that they sum to the charge."""
        assert batch.sites is not None
        node = batch.sites.atoms
        is_node = (node >= 0).unsqueeze(-1)
        molecule = batch.edge_index.batch[node.clamp(min=0)]
        head = self.site_head("atom")
        values = head.in_own_units(outputs)[:, self._charges].masked_fill(~is_node, 0.0)
        sizes = values.new_zeros(batch.num_graphs, 1).index_add(0, molecule, is_node.to(values))
        totals = values.new_zeros(batch.num_graphs, values.size(1)).index_add(0, molecule, values)
        lacking = (batch.sites.charge.unsqueeze(-1) - totals) / sizes.clamp(min=1)
        changed = outputs[:, self._charges] + lacking[molecule] / head.scale[self._charges]
        return outputs.index_copy(1, torch.tensor(self._charges, device=node.device), changed)

    def _edges_between(self, batch: MoleculeBatch, edges: EdgeAttr, pairs: Tensor) -> Tensor:
        """Take the edges ``[n, edge_dim]`` from senders to receivers ``[2, n]``."""
        graph = batch.edge_index
        if isinstance(graph, CompleteGraphs) and self.reads_blocks:
            positions = graph.pair_rows(pairs)
        else:  # sorted by receiver, then sender
            count = len(graph.batch)
            senders, receivers = graph.edge_index
            positions = torch.searchsorted(receivers * count + senders, pairs[1] * count + pairs[0])
            positions = positions.clamp(max=max(0, len(senders) - 1))
        assert edges is not None
        return edges_at(edges, positions)

    def encode_graphs(self, batch: MoleculeBatch | Data) -> tuple[Tensor, Tensor, EdgeAttr]:
        """Represent each atom and edge of the first molecules; see :meth:`encode`.

        Returns:
            Vectors ``[N, atom_width]``, the molecule of each atom, ``int64 [N]``, and, of a network
            with a head of bonds, the edges after the last block; those of complete graphs are pair
            rows.
        """
        x = self.atom_embedding(batch.x)
        codes = batch.edge_attr
        assert codes is not None
        if not isinstance(batch, MoleculeBatch):
            edge_index = batch["edge_index"]
            self._check_self_loops(edge_index, len(x))
            if self.farthest is not None:  # such a graph may list all pairs
                is_near = self.distance_of_pair(codes)[:, 0] <= self.farthest
                edge_index = edge_index[:, is_near]
                codes = codes[is_near]
            index = x.new_zeros(len(x), dtype=torch.long) if batch.batch is None else batch.batch
            nodes, edges = self._encode_edges(x, edge_index, codes, index)
            return nodes, index, edges
        graph = batch.edge_index
        if isinstance(graph, CompleteGraphs) and self.reads_blocks:
            if codes.is_floating_point():
                edges = self.pair_embedding(codes)
            else:
                codes = CodedEdges(codes.long(), batch.pair_codes)
                edges = replace(codes, table=self.pair_embedding(codes.table))
            rows, edges = self._encode(x, graph, edges, codes)
            return graph.rows_to_nodes(rows), graph.batch, edges
        if isinstance(graph, CompleteGraphs):
            x = graph.rows_to_nodes(x)
            codes = graph.pairs_to_edges(codes)
        if not codes.is_floating_point():
            codes = batch.pair_codes[codes.long()]
        nodes, edges = self._encode_edges(x, graph.edge_index, codes, graph.batch)
        return nodes, graph.batch, edges

    def _encode_edges(
        self, x: Tensor, edge_index: Tensor, codes: Tensor, index: Tensor
    ) -> tuple[Tensor, EdgeAttr]:
        """Encode atoms ``[N, width]`` of a graph whose edges are listed, and the edges."""
        graph = EdgeList(edge_index, index)
        out, edges = self._encode(x, graph, self.pair_embedding(codes), codes)
        if out.shape != (expected := (len(x), self.atom_width)):
            raise ValueError(f"encoder: got atoms {list(out.shape)}, expected {list(expected)}")
        return out, edges

    def encode_pairs(self, x: Tensor, graph: Edges, edges: EdgeAttr, codes: EdgeAttr) -> Tensor:
        """Encode atoms ``[R, width]``, of embeddings of atoms and pairs, and codes of pairs."""
        return self._encode(x, graph, edges, codes)[0]

    def _encode(
        self, x: Tensor, graph: Edges, edges: EdgeAttr, codes: EdgeAttr
    ) -> tuple[Tensor, EdgeAttr]:
        options: dict[str, Any] = {}
        # Encoders of other classes may not take distances.
        if self.has_slopes and isinstance(self.encoder, Encoder):
            options["bias_attr"] = (
                replace(codes, table=self.distance_of_pair(codes.table))
                if isinstance(codes, CodedEdges)
                else self.distance_of_pair(codes)
            )
        if self.reads_degree or self.walk_length:
            bonds = map_edges(self.bond_of_pair, codes)[:, 0]
        if self.reads_degree:
            options["degree"] = graph.pairs_to_receivers(bonds, len(x))
        if self.walk_length:
            walks = pair_walks(graph, bonds, self.walk_length)
            of_atoms, of_pairs = self.walk_embedding
            x = x + of_atoms(graph.pairs_to_receivers(walks * walks[:, :1], len(x)))  # of i = j
            edges = edge_features(edges) + of_pairs(walks)
        updates_edges = "bond" in self.site_heads and isinstance(self.encoder, Encoder)
        if updates_edges:
            options["return_edges"] = True
        if "bonds" in getattr(self.encoder, "graphs", ()):
            return self._encode_in_turn(x, graph, edges, codes, options)
        if isinstance(graph, EdgeList):
            encoded = self.encoder(x, graph.edge_index, edge_attr=edges, **options)
        else:
            encoded = self.encoder(x, graph, edges, **options)
        return encoded if updates_edges else (encoded, edges)

    def _encode_in_turn(
        self, x: Tensor, graph: Edges, edges: EdgeAttr, codes: EdgeAttr, options: dict[str, Any]
    ) -> tuple[Tensor, EdgeAttr]:
        """Encode with blocks that read bonds and others that read all pairs."""
        is_bond = map_edges(self.bond_of_pair, codes)[:, 0] > 0
        if is_mask := self._masks_bonds(graph):
            bonds, of_bonds = graph.with_edges(is_bond), edges
        else:
            bonds, of_bonds = listed_edges(graph, edges, is_bond)
        graphs = {
            "bonds": bonds,
            "pairs": graph.edge_index if isinstance(graph, EdgeList) else graph,
        }
        edges_by_graph = {"bonds": of_bonds, "pairs": edges}
        for name in {"bias_attr", "degree"} & {*options}:
            options[name] = {"pairs": options[name]}
        if self.reads_degree:
            options["degree"]["bonds"] = graph.rows_to_nodes(options["degree"]["pairs"])
        rows = x if is_mask else graph.rows_to_nodes(x)
        encoded = self.encoder(rows, graphs, edges_by_graph, **options)
        nodes = encoded
        if "return_edges" in options:
            nodes, edges_by_graph = encoded
        return nodes if is_mask else graph.nodes_to_rows(nodes), edges_by_graph["pairs"]

    def _masks_bonds(self, graph: Edges) -> TypeGuard[CompleteGraphs]:
        """Whether bonds are a mask of the pairs, not a list: for ONNX, and in predictions.

        There it is faster for molecules of up to some 40 atoms, if the layer is edge attention by
        dot products, without gates and updated edges.
        """
        is_fast = self.can_mask_bonds and not torch.is_grad_enabled()
        return isinstance(graph, CompleteGraphs) and (is_fast or isinstance(graph, PaddedGraphs))

    def _check_self_loops(self, edge_index: Tensor, atoms: int) -> None:
        """Raise if a PyG graph has other self loops than the model; not where that would wait."""
        if torch.compiler.is_compiling() or edge_index.device.type != "cpu":
            return
        loops = int((edge_index[0] == edge_index[1]).sum())
        expected = atoms * self.self_loops
        if loops != expected:
            raise ValueError(
                f"edge_index: got {loops} self loops, expected {expected}, as "
                f"molattn.from_smiles(..., self_loops={self.self_loops}) makes"
            )

    def freeze(self, what: int | Freeze) -> None:
        """Exclude weights from training; frozen modules stay in evaluation mode.

        ``embeddings``; a number: the embeddings and that many of the first blocks; ``encoder``: the
        embeddings and the whole encoder; ``none`` unfreezes all.
        """
        embeddings = [self.atom_embedding, self.pair_embedding, self.walk_embedding]
        frozen = {"none": [], "embeddings": embeddings, "encoder": [*embeddings, self.encoder]}
        blocks = [*getattr(self.encoder, "blocks", ())]  # a custom one may have none
        if isinstance(what, str):
            check_one_of("freeze", what, frozen)
        elif not 0 <= what <= len(blocks):
            message = f"got {what}, expected 0 to {len(blocks)}, the number of blocks"
            raise InputError(message, option="freeze")
        self._frozen = frozen[what] if isinstance(what, str) else embeddings + blocks[:what]
        self.requires_grad_(True)
        for module in self._frozen:
            module.requires_grad_(False)
        self.train(self.training)

    @property
    def has_frozen_encoder(self) -> bool:
        """Whether :meth:`freeze` has frozen the encoder."""
        return any(module is self.encoder for module in self._frozen)

    def train(self, mode: bool = True) -> "Network":
        """Set training or evaluation mode; frozen modules stay in evaluation mode."""
        super().train(mode)
        for module in self._frozen:
            module.eval()
        return self


def listed_edges(graph: Edges, edges: EdgeAttr, is_edge: Tensor) -> tuple[Tensor, EdgeAttr]:
    """Take pairs by a mask ``[P]`` as a list of edges with their features."""
    assert edges is not None
    if isinstance(graph, EdgeList):
        return graph.edge_index[:, is_edge], edges_at(edges, is_edge)
    is_listed = is_edge[graph.edge_row]
    return graph.edge_index[:, is_listed], edges_at(edges, graph.edge_row[is_listed])


def pair_walks(graph: Edges, bonds: Tensor, length: int) -> Tensor:
    """Probabilities ``[P, length]`` of :class:`molattn.graph.RRWP`; bonds ``[P]`` are 1."""
    if isinstance(graph, EdgeList):
        assert graph.batch is not None
        whole = CompleteGraphs(graph.batch.bincount().tolist()).to(bonds.device)
        rows = whole.pair_rows(graph.edge_index)
        all_bonds = bonds.new_zeros(whole.num_pairs).index_copy(0, rows, bonds)
        return pair_walks(whole, all_bonds, length)[rows]
    parts = [random_walks(block.pairs(bonds), length).flatten(0, 2) for block in graph.blocks]
    return join_pairs(parts, bonds.new_zeros(0, length))


def _bonded(featurizer: Featurizer) -> Tensor:
    """Return the terms ``[sum(pair_sizes), 1]`` of codes in whether two atoms share a bond."""
    bonded = torch.zeros(sum(featurizer.pair_sizes), 1)
    bonded[1 : featurizer.pair_sizes[0]] = 1.0
    return bonded


def _distance_and_bond(featurizer: Featurizer) -> tuple[Tensor, Tensor]:
    """Return the terms ``[sum(pair_sizes), 2]`` of codes in distance and bond, and their base.

    The distance is in bonds, and one more than the largest for atoms of different fragments. The
    bond is 1 for bonded pairs and for an atom with itself.
    """
    bonds = featurizer.pair_sizes[0]
    distances = featurizer.pair_sizes[-1]
    values = torch.zeros(sum(featurizer.pair_sizes), 2)
    values[1:bonds, 1] = 1.0
    values[-distances:, 0] = torch.arange(distances) - (distances - 1.0)
    values[-distances, 1] = 1.0
    return values, torch.tensor([distances - 1.0, 0.0])


class Undrawn(TorchFunctionMode):
    """Makes modules of zeros inside its block, without moving the global random generators.

    A configuration of far more numbers than the file of weights has is refused before they take
    memory.

    Args:
        most: Largest number of numbers of all tensors.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._remaining = most

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        name = getattr(function, "__name__", "")
        kwargs = kwargs or {}
        if name.endswith(("uniform_", "normal_")):
            return nn.init.zeros_(args[0] if args else kwargs["tensor"])
        output = (torch.zeros if name in ("rand", "randn") else function)(*args, **kwargs)
        if name in ("empty", "ones", "rand", "randn", "zeros"):
            self._remaining -= output.numel()
            if self._remaining < 0:
                message = f"got a larger network than that of {WEIGHTS_FILE}"
                raise ValueError(f"{message}, expected the configuration it was saved with")
        return output
