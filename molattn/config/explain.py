"""Options of explanations."""

from dataclasses import dataclass

from molattn.config.checks import check
from molattn.config.predict import PredictConfig
from molattn.errors import InputError

__all__ = ["ExplainConfig"]


@dataclass(frozen=True)
class ExplainConfig(PredictConfig):
    """How predictions are explained.

    Args:
        method: What scores atoms and bonds, one or more of: attention, rollout,
            gradient_attention, integrated_gradients, occlusion.
        target: The property to explain; of several classes one is named by its column of
            predictions, as in phase_probability_solid, or each molecule's likeliest is explained.
            By default the first property.
        check: Measure whether each method finds the atoms that the model needs better than chance,
            on up to 200 of these molecules taken at random, and say so on the page.
        limit: Explain the first so many rows alone.
    """

    method: tuple[str, ...] = ("integrated_gradients",)
    target: str | None = None
    check: bool = False
    limit: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "method", tuple(dict.fromkeys(self.method)))
        if not self.method:
            raise InputError("--method: got none, expected one or more")
        if self.limit is not None:
            check(self, "limit", lambda n: n >= 1, "a whole number of at least 1", int)
