"""Every registered layer inside torch: compile, export, copies, number types, devices."""

import io

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.export import Dim
from torch.utils.checkpoint import checkpoint

from molattn.graph import CompleteGraphs

DOUBLE = torch.float64
# Nodes and edges; the first are unlike any width, or the compiler would take them for one.
SIZES = [(11, 17), (20, 60), (3, 4), (7, 7)]


def random_inputs(subject, num_nodes, num_edges, dtype=torch.float32):
    x = subject.nodes(num_nodes, dtype=dtype)
    edge_index = torch.randint(0, num_nodes, (2, num_edges))
    return x, edge_index, subject.features(num_edges, dtype=dtype)


def tensors(out):
    return [t for t in (out if isinstance(out, tuple) else (out,)) if torch.is_tensor(t)]


def test_compiled_once_for_all_sizes(traced_subject):
    """In values and gradients; sizes 0 and 1 are always cases of their own to the compiler."""
    subject = traced_subject
    torch.compiler.reset()
    conv = subject.make(dtype=torch.float32)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(conv, fullgraph=True, dynamic=True, backend=counter)
    frames = 0
    for size in SIZES:
        x, edge_index, given = random_inputs(subject, *size)
        got, expected = (tensors(f(x, edge_index, **given)) for f in (compiled, conv))
        gradients = [
            torch.autograd.grad(sum(t.square().sum() for t in out), [x, *conv.parameters()])
            for out in (got, expected)
        ]
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(*gradients)
        frames = frames or counter.frame_count
        assert counter.frame_count == frames


def test_exported_for_all_sizes(subject):
    conv = subject.make(dtype=torch.float32)
    nodes, edges = Dim("nodes"), Dim("edges")
    x, edge_index, given = random_inputs(subject, *SIZES[0])
    given = {k: v for k, v in given.items() if v is not None}
    shapes = {"x": {0: nodes}, "edge_index": {1: edges}, "edge_attr": {0: edges}, "u": None}
    shapes = {name: shapes[name] for name in ("x", "edge_index", *given)}
    program = torch.export.export(conv, (x, edge_index), given, dynamic_shapes=shapes)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for size in (*SIZES, (4, 0), (1, 1), (1, 3), (2, 1)):
        x, edge_index, given = random_inputs(subject, *size)
        given = {k: v for k, v in given.items() if v is not None}
        got, expected = (tensors(f(x, edge_index, **given)) for f in (loaded, conv))
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("some", [False, True])
def test_function_transforms_on_complete_graphs(dense_subject, some):
    graph = CompleteGraphs([1, 3, 2])
    if some:
        graph = graph.with_edges(torch.rand(graph.num_pairs) < 0.6)
    conv, x = dense_subject.make(), dense_subject.nodes(graph.num_nodes).detach()
    given = dense_subject.features(graph.num_edges, batch=graph.batch)

    def run(x):
        return dense_subject.run_complete(conv, x, graph, given)["nodes"]

    def listed(x):
        return dense_subject.run(conv, x, graph.edge_index, given)["nodes"]

    expected = torch.autograd.functional.jacobian(listed, x)
    for jacobian in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(jacobian(run)(x), expected)
    many = torch.stack([x, 2 * x])
    torch.testing.assert_close(torch.func.vmap(run)(many), torch.stack([listed(x), listed(2 * x)]))
    energy = torch.func.hessian(lambda x: run(x).square().sum())(x)
    expected = torch.autograd.functional.hessian(lambda x: listed(x).square().sum(), x)
    torch.testing.assert_close(energy, expected)


def test_complete_graphs_stay_on_their_device(dense_subject):
    """Without a value of a tensor read, for which the CPU would wait: ``meta`` has none."""
    graph = CompleteGraphs([1, 4, 3], self_loops=False)
    x, given = dense_subject.in_rows(graph)
    x = x.detach().to("meta").requires_grad_()
    conv = dense_subject.make(dtype=torch.float32).to("meta")
    given = {name: part.to("meta") for name, part in given.items()}
    out = tensors(conv(x, graph.to("meta"), **given))
    assert all(part.is_meta for part in out)
    sum(part.sum() for part in out).backward()
    assert x.grad is not None
    assert x.grad.is_meta


# The first is of numbers unlike any width, as above.
LAYOUTS = [[9, 8, 1, 2, 11, 2, 2], [2, 30, 3, 2, 2, 30, 30, 3], [5, 9, 2]]


def test_compiled_once_for_all_complete_graphs(traced_subject):
    torch.compiler.reset()
    conv = traced_subject.make(dtype=torch.float32)
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(conv, fullgraph=True, dynamic=True, backend=counter)
    assert len({len(CompleteGraphs(sizes).blocks) for sizes in LAYOUTS}) > 1
    for sizes in LAYOUTS:
        graph = CompleteGraphs(sizes, self_loops=False)
        graph = graph.with_edges(torch.rand(graph.num_pairs) < 0.6)
        x, given = traced_subject.in_rows(graph, coded=not traced_subject.layer.edge_columns)
        results = []
        for layer in (compiled, conv):
            nodes, *others = tensors(layer(x, graph, **given))
            out = [graph.rows_to_nodes(nodes)]
            if "update_edges" in traced_subject.switches:
                out.append(graph.pairs_to_edges(others.pop(0)))
            out += others
            loss = sum(part.square().sum() for part in out)
            results.append((*out, *torch.autograd.grad(loss, [x, *conv.parameters()])))
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
        assert counter.frame_count == 1


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The usage of `scatter:UserWarning")  # PyG's advice on a GPU
def test_cuda_gives_the_same_numbers(subject, multigraph):
    conv, x, given = subject.make(), subject.nodes(9), subject.features(20)
    expected = subject.run(conv, x, multigraph, given, weights=True)
    there = {k: v.cuda() if torch.is_tensor(v) else v for k, v in given.items()}
    got = subject.run(conv.cuda(), x.cuda(), multigraph.cuda(), there, weights=True)
    for name in got.keys() - {"graph"}:
        torch.testing.assert_close(got[name].cpu(), expected[name], rtol=0, atol=1e-10)


def test_activation_checkpoints_give_the_same_gradients(dense_subject):
    graph = CompleteGraphs([1, 3, 0, 2])
    conv, x = dense_subject.make(), dense_subject.nodes(graph.num_nodes).detach()
    given = dense_subject.features(graph.num_edges, batch=graph.batch)

    def gradients(wrapped):
        rows = x.clone().requires_grad_()
        out = dense_subject.run_complete(wrapped, rows, graph, given)["nodes"]
        return torch.autograd.grad(
            out.square().sum(), [rows, *conv.parameters()], allow_unused=True
        )

    found = gradients(
        lambda *args, **options: checkpoint(conv, *args, use_reentrant=False, **options)
    )
    torch.testing.assert_close(found, gradients(conv), rtol=0, atol=0)
