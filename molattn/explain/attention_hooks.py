"""Forward hooks that record the attention weights and gates applied to a molecule."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Optional, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.data import Data

from molattn.graph import MoleculeBatch
from molattn.model.model import MolAttn
from molattn.model.network import Network
from molattn.nn import HeadGate


class Recorded(NamedTuple):
    """Weights ``[E, heads]`` of each layer of a network, and gates ``[rows, heads]``, if any."""

    weights: list[Tensor]
    gates: list[Tensor]


class Attention(NamedTuple):
    """Attention weights of a molecule of ``n`` atoms, before dropout.

    Args:
        weights: ``float64 [members, layers, heads, n receivers, n senders]``.
        gates: ``float64 [members, layers, heads, n]``; None where heads have no gate.
        gradients: Gradients of each member's prediction in the weights, if requested, of the same
            shape; 0 for pairs without an edge.
    """

    weights: NDArray[np.float64]
    gates: Optional[NDArray[np.float64]]
    gradients: Optional[NDArray[np.float64]] = None

    @property
    def applied(self) -> NDArray[np.float64]:
        """Weights times gates: the coefficients of the senders' values."""
        return self.weights if self.gates is None else self.weights * self.gates[..., np.newaxis]


@contextmanager
def record_attention(model: MolAttn, graph: Any) -> Iterator[list[Recorded]]:
    """Record the attention of each network in the forward passes inside the block.

    Forward hooks make each layer return its weights in the call that uses them. Calls on graphs
    other than ``graph``, the batch's ``edge_index``, are those of second molecules and are ignored.
    """
    members = [Recorded([], []) for _ in model.nets]
    with ExitStack() as hooks:
        for recorded, net in zip(members, cast(Iterable[Network], model.nets), strict=True):
            for layer in net.attention_layers:
                for handle in _hook(layer, graph, recorded):
                    hooks.callback(handle.remove)
        yield members


def _hook(conv: nn.Module, graph: Any, recorded: Recorded) -> Iterator[Any]:
    def is_recorded(args: Any, kwargs: Any) -> bool:
        return (args[1] if len(args) > 1 else kwargs["edge_index"]) is graph

    def request(_: nn.Module, args: Any, kwargs: Any) -> Any:
        more = {"return_attention_weights": True} if is_recorded(args, kwargs) else {}
        return args, {**kwargs, **more}

    def record(_: nn.Module, args: Any, kwargs: Any, result: Any) -> Any:
        if not is_recorded(args, kwargs):
            return None
        *outputs, (_, weights) = result
        recorded.weights.append(weights)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def record_gate(_: nn.Module, args: Any, gates: Tensor) -> None:
        if args[2].edge_index is graph:
            recorded.gates.append(gates)

    yield conv.register_forward_pre_hook(request, with_kwargs=True)
    yield conv.register_forward_hook(record, with_kwargs=True)
    for module in conv.modules():
        if isinstance(module, HeadGate):
            yield module.register_forward_hook(record_gate)


def attention_weights(
    model: MolAttn,
    molecule: MoleculeBatch,
    predict: Callable[[Data], Tensor],
    *,
    gradients: bool = False,
) -> Attention:
    """Return the weights and gates that a model in evaluation mode applies to a batch of one.

    There are no layers if a custom encoder does not apply attention layers of ``molattn.nn``, all
    with the same number of heads, to the edges of the molecule. ``predict`` returns what
    ``gradients`` are of: the prediction of each member, ``[members]``.
    """
    data, n = _edge_list(model, molecule), molecule.layout.num_nodes
    with (
        torch.enable_grad() if gradients else torch.inference_mode(),
        record_attention(model, data.edge_index) as members,
    ):
        values = predict(data)
    layers = [net.weights for net in members]
    if len({weights.shape for net in layers for weights in net}) != 1:
        return Attention(np.zeros((len(members), 0, 0, n, n)), None)

    def matrices(edges: Iterable[Any]) -> NDArray[np.float64]:
        """Lay out ``[E, heads]`` of each member and layer as ``[members, layers, heads, n, n]``."""
        stacked = torch.stack([torch.stack([*net]) for net in edges]).detach().transpose(2, 3)
        pairs = stacked.new_zeros(*stacked.shape[:3], n, n)
        sender, receiver = data["edge_index"]
        pairs[..., receiver, sender] = stacked
        return pairs.cpu().double().numpy()

    gates = slopes = None
    if members[0].gates:
        gates = torch.stack([torch.stack(net.gates) for net in members]).detach().transpose(2, 3)
        gates = gates.cpu().double().numpy()
    if gradients:
        pairs = zip(values, layers, strict=True)
        slopes = matrices(
            torch.autograd.grad(value, net, retain_graph=True) for value, net in pairs
        )
    return Attention(matrices(layers), gates, slopes)


def _edge_list(model: MolAttn, molecule: MoleculeBatch) -> Data:
    """Return a batch of one as a graph of PyG, on which layers return the weights of their sums.

    Gradients with respect to these exist.
    """
    graph = molecule.layout
    table = torch.tensor(model.config.featurizer.pair_table, device=molecule.x.device).long()
    codes = molecule.pair_codes[graph.pairs_to_edges(molecule.edge_attr).long()]
    more = {name: getattr(molecule, name) for name in ("numbers", "partners", "partner_index")}
    return Data(
        x=graph.rows_to_nodes(molecule.x.long()),
        edge_index=graph.edge_index,
        edge_attr=table[codes.long()],
        num_nodes=graph.num_nodes,
        **more,
    )
