"""Forward hooks that record the attention weights and gates applied to a molecule."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Optional, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.data import Data

from molattn.graph import MoleculeBatch
from molattn.model.model import MolAttn
from molattn.model.network import Network
from molattn.nn import HeadGate

__all__ = ["Attention", "attention_gradients", "attention_weights", "record_attention"]


@dataclass
class Recorded:
    """Weights ``[E, heads]`` of each layer of a network, and gates ``[rows, heads]``, if any."""

    weights: list[Tensor] = field(default_factory=list)
    gates: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Attention:
    """Attention weights of a molecule of ``n`` atoms, before dropout.

    Args:
        weights: ``float64 [members, layers, heads, n receivers, n senders]``.
        gates: ``float64 [members, layers, heads, n]``, 1 where heads have no gate.
        gated: Whether heads have a gate.
    """

    weights: NDArray[np.float64]
    gates: NDArray[np.float64]
    gated: bool

    @property
    def applied(self) -> NDArray[np.float64]:
        """Weights times gates: the coefficients of the senders' values."""
        return self.weights * self.gates[..., np.newaxis]


@contextmanager
def record_attention(model: MolAttn, graph: Any) -> Iterator[list[Recorded]]:
    """Record the attention of each network in the forward passes inside the block.

    Forward hooks make each layer return its weights in the call that uses them. Calls on graphs
    other than ``graph``, the batch's ``edge_index``, are those of second molecules and are ignored.
    """
    found = [Recorded() for _ in model.nets]
    with ExitStack() as hooks:
        for recorded, net in zip(found, model.nets, strict=True):
            for layer in cast(Network, net).attention_layers:
                for handle in _hook(layer, graph, recorded):
                    hooks.callback(handle.remove)
        yield found


def _hook(conv: nn.Module, graph: Any, recorded: Recorded) -> Iterator[Any]:
    # A call with another graph is of a second molecule, or of another thread.
    def is_of_graph(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        return (args[1] if len(args) > 1 else kwargs["edge_index"]) is graph

    def request(_: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if is_of_graph(args, kwargs):
            return args, {**kwargs, "return_attention_weights": True}
        return None

    def record(_: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> Any:
        if not is_of_graph(args, kwargs):
            return None
        *rest, (_, weights) = result
        recorded.weights.append(weights)
        return rest[0] if len(rest) == 1 else tuple(rest)

    def record_gate(_: nn.Module, args: tuple[Any, ...], gates: Tensor) -> None:
        if args[2] is graph:
            recorded.gates.append(gates)

    yield conv.register_forward_pre_hook(request, with_kwargs=True)
    yield conv.register_forward_hook(record, with_kwargs=True)
    for part in conv.modules():
        if isinstance(part, HeadGate):
            yield part.register_forward_hook(record_gate)


@torch.inference_mode()
def attention_weights(
    model: MolAttn, molecule: MoleculeBatch, features: Optional[Tensor] = None
) -> Attention:
    """Return the weights and gates that a model in evaluation mode applies to a batch of one.

    The result has no layers (``L = 0``) if a custom encoder does not apply attention layers of
    ``molattn.nn``, all with the same number of heads, to the edges of the molecule.
    """
    data, n = _edge_list(model, molecule), molecule.layout.num_nodes
    with record_attention(model, data.edge_index) as members:
        model(data, features)
    if len({weights.shape for net in members for weights in net.weights}) != 1:
        no_layer = np.zeros((len(members), 0, 0, n, n))
        return Attention(no_layer, no_layer[..., 0], False)
    weights = torch.stack([torch.stack(net.weights) for net in members])
    weights = _matrices(weights, molecule.edge_index.edge_index, n)
    gated = bool(members[0].gates)
    gates = weights.new_ones(1)
    if gated:
        gates = torch.stack([torch.stack(net.gates) for net in members]).transpose(2, 3)
    return Attention(
        weights.cpu().double().numpy(),
        gates.expand(weights.shape[:-1]).cpu().double().numpy(),
        gated,
    )


def attention_gradients(
    model: MolAttn, molecule: MoleculeBatch, predict: Callable[[Data], Tensor]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weights of a batch of one, and the gradient of each member's prediction in them.

    Both are ``[members, layers, heads, n receivers, n senders]``, 0 for pairs without an edge.

    Args:
        model: The model.
        molecule: The batch of one.
        predict: Returns the prediction of each member for the molecule, ``[members]``.
    """
    # As a list of edges: on this path the weights that a layer returns are those in its sums, so
    # that gradients with respect to them exist.
    data, n = _edge_list(model, molecule), molecule.layout.num_nodes
    with torch.enable_grad(), record_attention(model, data.edge_index) as members:
        values = predict(data)
        flat = [weights for net in members for weights in net.weights]
        gradients = [
            gradient
            for value, net in zip(values, members, strict=True)
            for gradient in torch.autograd.grad(value, net.weights, retain_graph=True)
        ]

    def matrices(tensors: list[Tensor]) -> NDArray[np.float64]:
        edges = torch.stack(tensors).detach().cpu().double().unflatten(0, (len(members), -1))
        return _matrices(edges, molecule.edge_index.edge_index.cpu(), n).numpy()

    return matrices(flat), matrices(gradients)


def _matrices(edges: Tensor, edge_index: Tensor, n: int) -> Tensor:
    """Lay out ``[members, layers, E, heads]`` as ``[members, layers, heads, n, n]``."""
    sender, receiver = edge_index
    members, layers, _, heads = edges.shape
    pairs = edges.new_zeros(members, layers, heads, n, n)
    pairs[..., receiver, sender] = edges.transpose(2, 3)
    return pairs


def _edge_list(model: MolAttn, molecule: MoleculeBatch) -> Data:
    """Return a batch of one as a graph of PyG."""
    graph = molecule.layout
    table = torch.tensor(model.config.featurizer.pair_table, device=molecule.x.device).long()
    codes = molecule.pair_codes[graph.pairs_to_edges(molecule.edge_attr).long()]
    data = Data(
        x=graph.rows_to_nodes(molecule.x.long()),
        edge_index=graph.edge_index,
        edge_attr=table[codes.long()],
        num_nodes=graph.num_nodes,
    )
    for name in ("numbers", "partners", "partner_index"):
        setattr(data, name, getattr(molecule, name))
    return data
