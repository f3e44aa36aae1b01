"""The attention weights and gates that a model applies to a molecule, as it applies them."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Optional

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.data import Data

from molattn.explain.target import Target
from molattn.graph import MoleculeBatch
from molattn.model.model import MolAttn
from molattn.nn import HeadGate

__all__ = ["Attention", "attention_gradients", "attention_of", "record_weights"]


@dataclass
class Recorded:
    """What one network applied, layer by layer.

    Args:
        weights: Of each layer, as it returned them, ``[E, heads]``.
        gates: Of each layer with gates, ``[rows, heads]``.
    """

    weights: list[Tensor] = field(default_factory=list)
    gates: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Attention:
    """Weights of a molecule of ``n`` atoms, before dropout.

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
        """What the values of senders are multiplied by: weights times gates."""
        return self.weights * self.gates[..., np.newaxis]


@contextmanager
def record_weights(model: MolAttn, graph: Any) -> Iterator[list[Recorded]]:
    """Record what each network applies to one batch, within the forward pass that is going on.

    Each layer is asked for its weights in the very call that uses them.

    Args:
        model: The model.
        graph: The batch's ``edge_index``; calls on another graph, of second molecules, are let by.

    Yields:
        For each member what it applied; filled by the forward pass.
    """
    found = [Recorded() for _ in model.nets]
    with ExitStack() as hooks:
        for recorded, net in zip(found, model.nets, strict=True):
            for block in net.encoder.blocks:  # pyright: ignore[reportGeneralTypeIssues, reportAttributeAccessIssue]
                for handle in _hook(block.conv, graph, recorded):
                    hooks.callback(handle.remove)
        yield found


def _hook(conv: nn.Module, graph: Any, recorded: Recorded) -> Iterator[Any]:
    def ask(_: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return args, {**kwargs, "return_attention_weights": True}

    def take(_: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> Any:
        *rest, (_, weights) = result
        if args[1] is graph:
            recorded.weights.append(weights)
        return rest[0] if len(rest) == 1 else tuple(rest)

    def take_gate(_: nn.Module, args: tuple[Any, ...], gates: Tensor) -> None:
        if args[2] is graph:
            recorded.gates.append(gates)

    yield conv.register_forward_pre_hook(ask, with_kwargs=True)
    yield conv.register_forward_hook(take, with_kwargs=True)
    for part in conv.modules():
        if isinstance(part, HeadGate):
            yield part.register_forward_hook(take_gate)


@torch.inference_mode()
def attention_of(
    model: MolAttn, molecule: MoleculeBatch, features: Optional[Tensor] = None
) -> Attention:
    """Return the weights and gates that a model applies to a molecule.

    Args:
        model: The model, in evaluation mode.
        molecule: A batch of one.
        features: Its further numbers.
    """
    n = len(molecule.x)
    with record_weights(model, molecule.edge_index) as found:
        model(molecule, features)
    # One graph is a block without padding: a row for each pair, a receiver's senders together.
    weights = torch.stack([torch.stack(net.weights) for net in found]).unflatten(2, (n, n))
    gated = bool(found[0].gates)
    gates = weights.new_ones(1)
    if gated:
        gates = torch.stack([torch.stack(net.gates) for net in found]).transpose(2, 3)
    weights = weights.permute(0, 1, 4, 2, 3)
    return Attention(
        weights.double().cpu().numpy(),
        gates.expand(weights.shape[:-1]).double().cpu().numpy(),
        gated,
    )


def attention_gradients(
    model: MolAttn, molecule: MoleculeBatch, features: Optional[Tensor], output: Target
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weights, and the gradient of each member's own output with respect to them.

    Args:
        model: As for :func:`attention_of`, as are those that follow.
        molecule: A batch of one.
        features: Its further numbers.
        output: The output.

    Returns:
        Two ``[members, layers, heads, n receivers, n senders]``; 0 where a pair is no edge.
    """
    n = len(molecule.x)
    # As a list of edges: there what a layer returns is what its sums are made of, so that the
    # gradient of it exists.
    graph = molecule.edge_index
    table = torch.tensor(model.config.featurizer.pair_table, device=molecule.x.device).long()
    codes = molecule.pair_codes[graph.pairs_to_edges(molecule.edge_attr).long()]
    data = Data(
        x=molecule.x.long(), edge_index=graph.edge_index, edge_attr=table[codes.long()], num_nodes=n
    )
    for name in ("numbers", "partners", "partner_index"):
        setattr(data, name, getattr(molecule, name))
    with torch.enable_grad(), record_weights(model, data.edge_index) as found:
        outputs = output.value(model.member_outputs(data, features))
        flat = [weights for net in found for weights in net.weights]
        gradients = torch.autograd.grad(outputs.sum(), flat)
    sender, receiver = graph.edge_index.cpu().numpy()

    def matrices(tensors: "list[Tensor] | tuple[Tensor, ...]") -> NDArray[np.float64]:
        edges = torch.stack([*tensors]).detach().double().cpu().numpy()
        all_pairs = np.zeros((*edges.shape[::2], n, n))
        all_pairs[..., receiver, sender] = edges.swapaxes(1, 2)
        return all_pairs.reshape(len(found), -1, *all_pairs.shape[1:])

    return matrices(flat), matrices(gradients)
