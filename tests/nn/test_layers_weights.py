"""Every registered layer: the weights it reports, and its errors for invalid input."""

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
