"""Forward hooks that record the attention weights and gates applied to a molecule."""

from functools import partial
from typing import Any, NamedTuple, Optional

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.data import Data

from molattn._torch_compat import with_tensors
from molattn.graph import MoleculeBatch
from molattn.model.model import MolAttn
from molattn.nn import HeadGate


class Attention(NamedTuple):
    """Attention weights of ``n`` atoms before dropout, ``[members, layers, heads, n, n]``.

    Receivers come before senders. Gates are ``[members, layers, heads, n]``, if heads have any.
    """

    weights: NDArray[np.float64]
    gates: Optional[NDArray[np.float64]]

    @property
    def applied(self) -> NDArray[np.float64]:
        """Weights times gates: the coefficients of the senders' values."""
        return self.weights if self.gates is None else self.weights * self.gates[..., np.newaxis]


@torch.inference_mode()
def record_attention(model: MolAttn, molecule: MoleculeBatch) -> Attention:
    """Return the weights and gates that a model in evaluation mode applies to a batch of one.

    Forward hooks make each layer return its weights in the call that uses them. Copies that share
    the weights have the hooks, so that other threads may use the model. There are no layers if a
    custom encoder does not apply attention layers of ``molattn.nn``, all with the same number of
    heads, to the edges of the molecule.
    """
    data = _edge_list(model, molecule)
    n = molecule.layout.num_nodes
    weights: list[list[Tensor]] = []
    gates: list[list[Tensor]] = []
    for net in model.networks.members:
        weights.append([])
        gates.append([])
        detached = with_tensors(net, Tensor.detach)
        graphs: list[Any] = []
        detached.encoder.register_forward_pre_hook(partial(_keep_graphs, graphs), with_kwargs=True)
        for layer in detached.attention_layers:
            _add_hooks(layer, graphs, n, weights[-1], gates[-1])
        detached.encode_atoms(data)
    if len({layer_weights.shape for layers in weights for layer_weights in layers}) != 1:
        return Attention(np.zeros((len(weights), 0, 0, n, n)), None)
    pairs = torch.stack([torch.stack(layers) for layers in weights])
    if not gates[0]:
        return Attention(pairs.cpu().double().numpy(), None)
    of_heads = torch.stack([torch.stack(layers) for layers in gates]).transpose(2, 3)
    return Attention(pairs.cpu().double().numpy(), of_heads.cpu().double().numpy())


def _graph_of(args: Any, kwargs: Any) -> Any:
    return args[1] if len(args) > 1 else kwargs["edge_index"]


def _keep_graphs(graphs: list[Any], _: nn.Module, args: Any, kwargs: Any) -> None:
    """Keep the graph, or the graphs by name, with which an encoder is called."""
    graph = _graph_of(args, kwargs)
    graphs += [*graph.values()] if isinstance(graph, dict) else [graph]


def _add_hooks(
    conv: nn.Module, graphs: list[Any], n: int, weights: list[Tensor], gates: list[Tensor]
) -> None:
    """Record weights ``[H, n, n]`` and gates ``[H, n]`` of the calls on one of the graphs."""

    def is_recorded(graph: Any) -> bool:
        return any(graph is one_graph for one_graph in graphs)

    def request(_: nn.Module, args: Any, kwargs: Any) -> Any:
        more = {"return_attention_weights": True} if is_recorded(_graph_of(args, kwargs)) else {}
        return args, {**kwargs, **more}

    def record(_: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if not is_recorded(_graph_of(args, kwargs)):
            return None
        *outputs, ((sender, receiver), of_edges) = output
        pairs = of_edges.new_zeros(of_edges.size(1), n, n)
        pairs[:, receiver, sender] = of_edges.t()
        weights.append(pairs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def record_gate(_: nn.Module, args: Any, gate: Tensor) -> None:
        if is_recorded(args[2].edge_index):
            gates.append(gate)

    conv.register_forward_pre_hook(request, with_kwargs=True)
    conv.register_forward_hook(record, with_kwargs=True)
    for module in conv.modules():
        if isinstance(module, HeadGate):
            module.register_forward_hook(record_gate)


def _edge_list(model: MolAttn, molecule: MoleculeBatch) -> Data:
    """Return a batch of one as a graph of PyG, which every layer and encoder reads."""
    graph = molecule.layout
    table = torch.tensor(model.config.featurizer.pair_table, device=molecule.x.device).long()
    codes = molecule.pair_codes[graph.pairs_to_edges(molecule.edge_attr).long()]
    return Data(
        x=graph.rows_to_nodes(molecule.x.long()),
        edge_index=graph.edge_index,
        edge_attr=table[codes.long()],
        num_nodes=graph.num_nodes,
        **{name: getattr(molecule, name) for name in ("numbers", "partners", "partner_index")},
    )
