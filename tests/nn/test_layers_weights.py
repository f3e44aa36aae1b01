"""Every registered layer: the weights it reports, and its errors for invalid input."""

import inspect
import re

import pytest
import torch

from molattn.graph import CompleteGraphs

DOUBLE = torch.float64


def assert_near(got, expected, tolerance=1e-10):
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance)


def test_weights_are_of_the_edges_given(subject, multigraph):
    conv, x, given = subject.make(), subject.nodes(9), subject.features(20)
    out = subject.run(conv, x, multigraph, given, weights=True)
    assert out["graph"] is multigraph
    assert out["weights"].shape == (20, 2)
    for edge in range(20):  # alone with the other edges of its receiver, it has the same weight
        mine = multigraph[1] == multigraph[1, edge]
        part = given | ({"edge_attr": given["edge_attr"][mine]} if "edge_attr" in given else {})
        alone = subject.run(conv, x, multigraph[:, mine], part, weights=True)
        assert_near(alone["weights"], out["weights"][mine])


@pytest.mark.parametrize("asked", [False, None])
def test_without_weights_the_output_is_plain(subject, multigraph, asked):
    conv, x, given = subject.make(), subject.nodes(9), subject.features(20)
    plain = subject.run(conv, x, multigraph, given)
    same = subject.run(conv, x, multigraph, given | {"return_attention_weights": asked})
    with_weights = subject.run(conv, x, multigraph, given, weights=True)
    assert plain.keys() == same.keys() == with_weights.keys() - {"graph", "weights"}
    for name, part in plain.items():
        assert torch.equal(same[name], part)
        assert_near(with_weights[name], part)


def test_weights_sum_to_one_for_each_receiver(subject, multigraph):
    if not subject.layer.normalized:
        pytest.skip("does not claim to")
    conv, x = subject.make(), subject.nodes(9)
    out = subject.run(conv, x, multigraph, subject.features(20), weights=True)
    total = torch.zeros(9, 2, dtype=DOUBLE).index_add(0, multigraph[1], out["weights"])
    receives = torch.bincount(multigraph[1], minlength=9) > 0
    assert_near(total, receives.to(DOUBLE).unsqueeze(-1).expand(9, 2))
    assert not bool(receives[7:].any())


def test_weights_sum_to_one_on_complete_graphs(dense_subject):
    subject, graph = dense_subject, CompleteGraphs([1, 4, 3], self_loops=False)
    if not subject.layer.normalized:
        pytest.skip("does not claim to")
    conv, x = subject.make(), subject.nodes(8)
    given = subject.features(graph.num_edges, batch=graph.batch)
    out = subject.run_complete(conv, x, graph, given, weights=True)
    total = torch.zeros(8, 2, dtype=DOUBLE).index_add(0, graph.edge_index[1], out["weights"])
    assert_near(total, torch.tensor([[0.0], *[[1.0]] * 7], dtype=DOUBLE).expand(8, 2))


def test_weights_are_those_before_dropout(subject, multigraph):
    conv, x, given = subject.make(dropout=0.5), subject.nodes(9), subject.features(20)
    expected = subject.run(conv, x, multigraph, given, weights=True)
    conv.train()
    got = subject.run(conv, x, multigraph, given, weights=True)
    assert_near(got["weights"], expected["weights"])
    assert not torch.allclose(got["nodes"], expected["nodes"])


def test_weights_are_those_before_dropout_on_complete_graphs(dense_subject):
    subject, graph = dense_subject, CompleteGraphs([6, 3])
    conv, x = subject.make(dropout=0.5), subject.nodes(9)
    given = subject.features(graph.num_edges, batch=graph.batch)
    expected = subject.run_complete(conv, x, graph, given, weights=True)
    conv.train()
    got = subject.run_complete(conv, x, graph, given, weights=True)
    assert_near(got["weights"], expected["weights"])
    assert not torch.allclose(got["nodes"], expected["nodes"])


GRAPH = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 0]])


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ({"x": torch.ones(3, 5)}, ValueError, "x: got shape [3, 5], expected [*, 4]"),
        ({"x": torch.ones(3)}, ValueError, "x: got shape [3], expected [*, 4]"),
        ({"x": torch.ones(3, 4).long()}, TypeError, "x: got torch.int64, expected a floating"),
        ({"x": [[1.0] * 4] * 3}, TypeError, "x: got list, expected a tensor or a pair"),
        ({"x": (None, torch.ones(3, 4))}, TypeError, "x: got tuple, expected a tensor or a pair"),
        ({"size": 3}, TypeError, "size: got 3, expected a pair (senders, receivers)"),
        ({"size": (3, 4)}, ValueError, "size: got (3, 4), expected (3, 3), the rows of x"),
        (
            {"x": (torch.ones(3, 4), torch.ones(3, 5))},
            ValueError,
            "x[1] (receivers): got shape [3, 5], expected [*, 4]",
        ),
        ({"edge_index": GRAPH.t()}, ValueError, "edge_index: got shape [4, 2], expected [2, E]"),
        ({"edge_index": GRAPH[0]}, ValueError, "edge_index: got shape [4], expected [2, E]"),
        ({"edge_index": GRAPH.bool()}, TypeError, "edge_index: got torch.bool, expected integers"),
        ({"edge_index": GRAPH.float()}, TypeError, "got torch.float32, expected integers"),
        ({"edge_index": GRAPH.tolist()}, TypeError, "edge_index: got list, expected int64 [2, E]"),
        ({"edge_index": None}, TypeError, "edge_index: got NoneType, expected int64 [2, E]"),
        (
            {"edge_index": GRAPH + 1},
            IndexError,
            "edge_index[0]: got indices from 1 to 3, expected 0 <= index < 3, the number of",
        ),
        (
            {"edge_index": GRAPH - torch.tensor([[0], [1]])},
            IndexError,
            "edge_index[1]: got indices from -1 to 1, expected 0 <= index < 3",
        ),
        (
            {"edge_index": torch.eye(4).to_sparse()},
            ValueError,
            "adj_t: got shape [4, 4], expected [3, 3] (receivers, senders)",
        ),
        (
            {"edge_index": CompleteGraphs([2])},
            ValueError,
            "x: got shape [3, 4], expected [2, *]",
        ),
        (
            {"x": (torch.ones(3, 4), None), "edge_index": CompleteGraphs([3])},
            ValueError,
            "x: got (senders, None), which cannot be used with CompleteGraphs",
        ),
        (
            {"size": (3, 3), "edge_index": CompleteGraphs([3])},
            ValueError,
            "size cannot be used with CompleteGraphs",
        ),
        (
            {"edge_index": CompleteGraphs([2, 1])},
            ValueError,
            "x: got 3 nodes, expected 4 rows of the complete graphs: use graphs.nodes_to_rows(x)",
        ),
        (
            {"x": (torch.ones(3, 4), torch.ones(3, 4)), "edge_index": CompleteGraphs([3])},
            TypeError,
            "x: got a pair, expected a tensor: complete graphs are not bipartite",
        ),
    ],
)
def test_input_that_does_not_fit_names_got_and_expected(subject, changes, error, message):
    conv = subject.make(dtype=torch.float32)
    features = subject.features(4, dtype=torch.float32)
    given = {"x": torch.ones(3, 4), "edge_index": GRAPH, **features}
    conv(**given)
    with pytest.raises(error, match=re.escape(message)):
        conv(**(given | changes))


def test_edge_features_that_do_not_fit_name_got_and_expected(subject):
    conv = subject.make(dtype=torch.float32)
    x, width = torch.ones(3, 4), subject.edge_dim
    given = subject.features(4, dtype=torch.float32)
    given.pop("edge_attr", None)
    if width is None:
        cases = [
            (
                torch.ones(4, 2),
                ValueError,
                "edge_attr: got shape [4, 2], but the layer has edge_dim=None",
            )
        ]
    else:
        cases = [
            (None, ValueError, f"edge_attr: got None, expected [4, {width}]"),
            (torch.ones(5, width), ValueError, f"got shape [5, {width}], expected [4, {width}]"),
            (torch.ones(4, width + 1), ValueError, f"[4, {width + 1}], expected [4, {width}]"),
            (torch.ones(4, width).long(), TypeError, "edge_attr: got torch.int64, expected a fl"),
        ]
    for attr, error, message in cases:
        with pytest.raises(error, match=re.escape(message)):
            conv(x, GRAPH, edge_attr=attr, **given)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, float("nan")])
def test_impossible_dropout(plain_subject, dropout):
    with pytest.raises(ValueError, match=r"dropout: got .*, expected a probability"):
        plain_subject.make(dropout=dropout)


@pytest.mark.parametrize("heads", [0, -1, 4])
def test_impossible_heads(plain_subject, heads):
    with pytest.raises(ValueError, match=f"heads.*got .*{heads}"):
        plain_subject.make(heads=heads)


def test_the_docstring_has_all_that_a_reader_needs(plain_subject):
    conv = plain_subject.layer.conv
    text = inspect.getdoc(conv)
    for part in (".. math::", "Args:", "Shapes:", "Raises:", "Example:", ">>> "):
        assert part in text
    for name in list(inspect.signature(conv).parameters):
        assert re.search(rf"\n    {name}: ", text), f"{name} is not documented"
    for name in list(inspect.signature(conv.forward).parameters)[1:]:
        assert re.search(rf"\n    {name}: ", inspect.getdoc(conv.forward)), name
