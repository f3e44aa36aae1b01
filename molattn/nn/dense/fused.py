"""Attention over complete graphs as one step of autograd: the same forward, a backward by hand.

It is no fused kernel. Ordinary autograd would store and read several tensors of all pairs and
heads; here a layer stores one, its weights. All derivatives but the gradient are those of ordinary
operations. A ``score_mod`` must not have parameters to learn: they would get no gradient.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Optional

import torch
from torch import Tensor

from molattn._torch_compat import is_transformed
from molattn.graph.complete import Block, CompleteGraphs
from molattn.nn.dense.plain import (
    Attended,
    BlockView,
    PairInputs,
    ScoreMod,
    add_product,
    dense_attention,
    narrow_product,
    narrow_zeros,
    sum_dtype,
)

_INPUTS = len(PairInputs._fields)


def fused_attention(
    graph: CompleteGraphs,
    inputs: PairInputs,
    scale: float = 1.0,
    score_mod: ScoreMod = None,
    *,
    return_weights: bool = False,
    return_logits: bool = False,
) -> Attended:
    """Compute :func:`~molattn.nn.dense.plain.dense_attention` of inner products in one step."""
    returned: Any = {"return_weights": return_weights, "return_logits": return_logits}
    with without_autocast(inputs.query):
        if is_transformed(inputs.query) or not torch.is_grad_enabled():
            return dense_attention(graph, inputs, scale, score_mod, **returned)
        outputs: Any = _FusedAttention.apply((graph, scale, score_mod, returned), *inputs)
        return Attended(*outputs)


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Compute in the types of the tensors."""
    kind = x.device.type
    available = torch.amp.is_autocast_available(kind)  # pyright: ignore[reportPrivateImportUsage]
    active = available and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if active else nullcontext()


class _FusedAttention(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, options: Any, *inputs: Any
    ) -> Any:
        saved: list[Tensor] = []
        graph, scale, score_mod, returned = ctx.options = options
        pair_inputs = PairInputs(*inputs)
        attended = dense_attention(graph, pair_inputs, scale, score_mod, **returned, saved=saved)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, attended.nodes, attended.weights, *saved)
        return tuple(attended[:3])

    @staticmethod
    def backward(ctx: Any, *grads: Optional[Tensor]) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        present_grads = [grad for grad in grads if grad is not None]
        if not present_grads:
            return (None,) * len(ctx.needs_input_grad)
        with without_autocast(present_grads[0]):
            if torch.is_grad_enabled() or is_transformed(present_grads[0]):
                return None, *_differentiable(ctx, grads)
            return None, *_Gradients(ctx, grads).of_inputs()


class _Gradients:
    """Gradients that are constants to autograd."""

    def __init__(self, ctx: Any, grads: Sequence[Optional[Tensor]]) -> None:
        tensors = ctx.saved_tensors  # once: activation checkpointing computes them at each access
        inputs = PairInputs(*tensors[:_INPUTS])
        nodes, self.weights, *saved = tensors[_INPUTS:]
        self.graph, self.scale, self.score_mod, _ = ctx.options
        self.inputs = inputs.converted()
        self.saved = iter(saved)
        dtype = self.inputs.value.dtype
        wide = sum_dtype(nodes)
        if self.weights is not None:
            self.weights = self.weights.to(dtype)
        grad_output, self.grad_weights, self.grad_logits = grads
        grad_nodes = torch.zeros_like(nodes) if grad_output is None else grad_output
        self.grad_nodes = grad_nodes.to(dtype)
        # sum_s g_rs b_rs dL/d(g_rs b_rs)
        self.shift = (grad_nodes.to(wide) * nodes).sum(dim=-1, keepdim=True).to(dtype)
        self.grads: dict[str, Any] = dict.fromkeys(PairInputs._fields)
        for name, need in zip(PairInputs._fields, ctx.needs_input_grad[1:], strict=True):
            tensor: Any = getattr(inputs, name)
            if name in ("query", "key", "value"):
                self.grads[name] = self.graph.empty_rows(tensor)
            elif name in ("edge_key", "edge_value") and tensor is not None:
                # Heads first, or each would be a product of its own.
                terms, heads, channels = tensor.shape
                self.grads[name] = narrow_zeros(tensor, heads, terms, channels, wide)
            elif name == "code_bias" and tensor is not None:
                self.grads[name] = torch.zeros_like(tensor, dtype=wide)
            elif need and tensor is not None:
                self.grads[name] = torch.empty_like(tensor)

    def of_inputs(self) -> tuple[Optional[Tensor], ...]:
        """Gradients of all inputs."""
        for block, mask in zip(self.graph.blocks, self.graph.pair_masks, strict=True):
            self._add_block(block, mask)
        for name in ("edge_key", "edge_value"):
            if self.grads[name] is not None:
                self.grads[name] = self.grads[name].transpose(0, 1)
        return tuple(self.grads.values())

    def _add_block(self, block: Block, mask: Tensor) -> None:
        inputs = self.inputs
        grads = self.grads
        pairs = BlockView(block, self.inputs)
        q, k, grad_y = (pairs.read(x) for x in (inputs.query, inputs.key, self.grad_nodes))
        q.mul_(self.scale)
        weights = next(self.saved) if self.weights is None else pairs.by_head(self.weights)
        slopes = None
        applied = weights if inputs.edge_gate is None else weights * pairs.by_head(inputs.edge_gate)
        if inputs.edge_value is not None:  # dL/db through the edges' values
            slopes = pairs.by_node(grad_y) @ inputs.edge_value.transpose(0, 1).mT
            add_product(grads["edge_value"], next(self.saved).mT, pairs.by_node(grad_y))
        grad = self._of_logits(pairs, grad_y, weights, slopes)
        if self.grad_logits is not None:
            grad_logits = pairs.by_graph(pairs.by_head(self.grad_logits))
            pairs.by_graph(grad).add_(grad_logits.masked_fill(~mask, 0.0))
        self._put(pairs, "attn_bias", grad)
        if self.score_mod is not None:
            with torch.enable_grad():
                raw = pairs.products(self.scale, coded=False).detach().requires_grad_()
                (grad,) = torch.autograd.grad(self.score_mod(raw), raw, grad)
        grad_query = narrow_product(grad, k)
        if inputs.edge_key is not None:
            basis = inputs.edge_key.transpose(0, 1)
            grad_scores = pairs.pool(grad, basis.size(1))
            pairs.add_basis(grad_query, grad_scores, inputs.edge_key)
            add_product(grads["edge_key"], grad_scores.mT, pairs.by_node(q))
            if grads["code_bias"] is not None:
                grads["code_bias"] += grad_scores.sum(dim=1)
            if grads["edges"] is not None:
                grad_edges = pairs.by_pair(grad) @ pairs.by_row(pairs.by_node(q) @ basis.mT)
                if slopes is not None:
                    grad_edges += pairs.by_pair(applied) @ pairs.by_row(slopes)
                block.pairs(grads["edges"]).copy_(grad_edges)
        pairs.write(grad_query.mul_(self.scale), grads["query"])
        pairs.write(narrow_product(grad.mT, q), grads["key"])
        pairs.write(narrow_product(applied.mT, grad_y), grads["value"])

    def _of_logits(
        self, pairs: BlockView, grad_y: Tensor, weights: Tensor, slopes: Optional[Tensor]
    ) -> Tensor:
        """The gradient of a block's logits, ``[H B, N, N]``, through its nodes and weights."""
        v = pairs.read(self.inputs.value)
        shift = pairs.read(self.shift)
        gate = self.inputs.edge_gate
        grad_weights = pairs.by_head(self.grad_weights)
        if grad_weights is not None:
            shift = shift + (weights * grad_weights).sum(dim=-1, keepdim=True)
        # Subtract per code, before codes are expanded to pairs, of which there are more.
        shifted = pairs.coded and slopes is not None and gate is None
        if slopes is None:
            grad = torch.bmm(grad_y, v.mT)
        else:
            slopes = slopes.sub_(pairs.by_node(shift)) if shifted else slopes
            grad = pairs.contract(slopes).baddbmm_(grad_y, v.mT)
        if gate is not None:
            self._put(pairs, "edge_gate", grad * weights)
            grad.mul_(pairs.by_head(gate))
        if grad_weights is not None:
            grad.add_(grad_weights)
        return (grad if shifted else grad.sub_(shift)).mul_(weights)

    def _put(self, pairs: BlockView, name: str, grad: Tensor) -> None:
        """Copy the gradient of pairs ``[H B, N, N]`` to their rows, if it is needed."""
        if self.grads[name] is not None:
            pairs.block.pairs(self.grads[name]).copy_(pairs.by_pair(grad))


def _differentiable(ctx: Any, grads: Sequence[Optional[Tensor]]) -> Any:
    graph, scale, score_mod, returned = ctx.options

    def compute(*inputs: Any) -> Attended:
        return dense_attention(graph, PairInputs(*inputs), scale, score_mod, **returned)

    inputs = ctx.saved_tensors[:_INPUTS]
    needs = ctx.needs_input_grad[1:]
    return differentiable_gradients(compute, inputs, needs, grads)


def differentiable_gradients(
    compute: Callable[..., Iterable[Optional[Tensor]]],
    inputs: Sequence[Optional[Tensor]],
    needs: Sequence[bool],
    grads: Sequence[Optional[Tensor]],
) -> tuple[Optional[Tensor], ...]:
    """Return differentiable gradients of the ``inputs`` that need a gradient.

    ``compute`` does by ordinary operations what the step does whose backward pass this is;
    ``grads`` are of each tensor that came out, None = 0.
    """
    with torch.enable_grad():
        # Views, so that a tensor in two places has a gradient in each.
        views: list[Any] = [None if x is None else x.view_as(x) for x in inputs]
        outputs = compute(*views)
    outputs_with_grads = [
        (x, grad) for x, grad in zip(outputs, grads, strict=False) if grad is not None
    ]
    outs, out_grads = zip(*outputs_with_grads, strict=True)
    needed = [view for view, need in zip(views, needs, strict=True) if need]
    options: Any = {"create_graph": torch.is_grad_enabled(), "materialize_grads": True}
    input_grads = iter(torch.autograd.grad(outs, needed, out_grads, **options))
    return tuple(next(input_grads) if need else None for need in needs)
