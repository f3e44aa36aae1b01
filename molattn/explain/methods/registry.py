"""The methods by name: what each computes, and what its scores mean."""

from collections.abc import Callable
from dataclasses import dataclass

from molattn.errors import check_one_of
from molattn.explain.instance import Instance
from molattn.explain.methods.attention import gradient_attention, raw_attention, rollout
from molattn.explain.methods.base import MethodOptions, Scores
from molattn.explain.methods.integrated_gradients import integrated_gradients
from molattn.explain.methods.occlusion import occlusion

__all__ = ["METHODS", "Method", "find_method"]


@dataclass(frozen=True)
class Method:
    """A way to score atoms.

    Args:
        title: What a page calls it.
        compute: Computes scores.
        signed: Whether scores say in which direction an atom counts, in the output's unit, and add
            up to the prediction minus a baseline.
        meaning: What a score says, in one sentence.
        source: Where it was published.
    """

    title: str
    compute: Callable[[Instance, MethodOptions], Scores]
    signed: bool
    meaning: str
    source: str


METHODS: dict[str, Method] = {
    "attention": Method(
        "Raw attention",
        raw_attention,
        signed=False,
        meaning="the mean attention that an atom gets, over all receivers, layers and heads",
        source="Vaswani et al. 2017",
    ),
    "rollout": Method(
        "Attention rollout",
        rollout,
        signed=False,
        meaning="an atom's share in all atoms after the last layer, when attention and the "
        "residual connections are multiplied through",
        source="Abnar and Zuidema 2020",
    ),
    "gradient_attention": Method(
        "Gradient times attention",
        gradient_attention,
        signed=False,
        meaning="the attention paid to an atom, weighted by how much the prediction depends on it",
        source="after Chefer, Gur and Wolf 2021",
    ),
    "integrated_gradients": Method(
        "Integrated gradients",
        integrated_gradients,
        signed=True,
        meaning="what an atom's features, and half of each of its pairs', add to the prediction "
        "on the way from average atoms that know nothing of each other",
        source="Sundararajan, Taly and Yan 2017",
    ),
    "occlusion": Method(
        "Occlusion",
        occlusion,
        signed=True,
        meaning="the mean change of the prediction when an atom is masked after others, in random "
        "orders (a sampled Shapley value)",
        source="Zeiler and Fergus 2014; Castro, Gómez and Tejada 2009",
    ),
}


def find_method(name: str) -> Method:
    """Return the method of that name.

    Raises:
        InputError: There is none.
    """
    check_one_of("method", name, METHODS)
    return METHODS[name]
