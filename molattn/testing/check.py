"""All checks that apply to a module."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from torch import nn
from torch_geometric.data import Data

from .independence import (
    assert_batch_invariant,
    assert_graphs_independent,
    assert_padding_invariant,
)
from .numerics import (
    ISOLATED,
    assert_gradients,
    assert_isolated_nodes,
    assert_stable,
    require_finite,
)
from .subject import NotApplicableError, Subject, Worst
from .symmetry import (
    assert_edge_direction,
    assert_permutation_equivariant,
    assert_rotation_equivariant,
)

CHECKS: dict[str, Callable[..., Any]] = {
    "permutation": assert_permutation_equivariant,
    "independence": assert_graphs_independent,
    "batching": assert_batch_invariant,
    "padding": assert_padding_invariant,
    "direction": assert_edge_direction,
    "rotation": assert_rotation_equivariant,
    "gradients": assert_gradients,
    "isolated nodes": assert_isolated_nodes,
    "stability": assert_stable,
}


def check_module(
    module: nn.Module,
    data: Data,
    *,
    skip: Sequence[str] = (),
    options: Optional[Mapping[str, Mapping[str, Any]]] = None,
    **kwargs: Any,
) -> dict[str, str]:
    """Run all checks that apply to a layer or a model, and return the outcome of each by its name.

    A copy of the module is checked, in ``eval()`` and, but for its stability, in float64, where
    rounding does not hide errors. AssertionError lists all checks that failed. An outcome is
    ``"passed"``, ``"skipped"`` or ``"not applicable: "`` and the reason.

    ``skip``: names of checks that are not run, such as ``["direction"]``. ``options``: arguments of
    a check by its name, such as ``{"gradients": {"unused": ["lin_edge.*"]}}``. Not run are
    :func:`assert_attention_normalized` and :func:`assert_smooth`, which are meant for some layers
    only.
    """
    options = options or {}
    if unknown := {*skip, *options} - {*CHECKS}:
        raise ValueError(f"skip, options: got {sorted(unknown)}, expected among {[*CHECKS]}")
    plain = Subject(copy.deepcopy(module).eval(), data, kwargs)
    worst = Worst(plain, None, f"{plain.name} has outputs that are not finite", ISOLATED)
    outputs = {output.name: output.value for output in plain.outputs}
    require_finite(worst, outputs, "for the data itself")
    double = plain.in_double()
    report: dict[str, str] = {}
    failures: list[str] = []
    for name, check in CHECKS.items():
        subject = plain if name == "stability" else double
        try:
            if name not in skip:
                check(subject.module, subject.data, **options.get(name, {}), **subject.kwargs)
            report[name] = "skipped" if name in skip else "passed"
        except NotApplicableError as reason:
            report[name] = f"not applicable: {reason}"
        except AssertionError as error:
            failures.append(f"{name}: {error}")
        except Exception as error:
            dtype = "" if name == "stability" else " (in float64)"
            error.add_note(f"raised in the check {name!r}{dtype}; skip=[{name!r}] leaves it out")
            raise
    if failures:
        raise AssertionError("\n".join([f"{len(failures)} of the checks failed", *failures]))
    return report
