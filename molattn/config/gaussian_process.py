"""Options of the Gaussian process."""

from dataclasses import dataclass
from typing import Literal, get_args

from molattn.config.validation import check, check_choice, check_choices, check_unused

__all__ = ["DEFAULT_KERNELS", "GaussianProcessConfig", "Kernel"]

Predictor = Literal["both", "network", "gaussian_process"]
Kernel = Literal["morgan", "atom_pairs", "torsions", "feature_morgan", "embedding", "descriptors"]
DEFAULT_KERNELS: tuple[Kernel, ...] = ("morgan", "atom_pairs", "embedding")
_USED_ONLY = "is used only with a Gaussian process (--predictor)"


@dataclass(frozen=True)
class GaussianProcessConfig:
    """The Gaussian process, which predicts from similarity to the training molecules.

    Its kernel is the mean of a Tanimoto kernel of each kind of substructure counts and a Gaussian
    kernel of the network's embedding and, with ``descriptors``, one of RDKit descriptors.

    Args:
        predictor: What predicts: a network, a Gaussian process, or the mean of both, weighted by
            their errors on the validation rows.
        kernels: Kernels: morgan, atom_pairs, torsions, feature_morgan, embedding, descriptors. By
            default morgan, atom_pairs, embedding, and descriptors if they clearly raise the
            marginal likelihood.
        inducing_points: Most inducing points; with no more rows than that it is exact, except with
            more than 16 targets that have labels of different rows.
    """

    predictor: Predictor = "both"
    kernels: tuple[Kernel, ...] = ()
    inducing_points: int = 2000

    def __post_init__(self) -> None:
        check_choice(self, "predictor", get_args(Predictor))
        size = "a whole number from 1 to 20000"
        check(self, "inducing_points", lambda n: 1 <= n <= 20_000, size, int)
        if self.kernels:
            check_choices(self, "kernels", get_args(Kernel), "kernel")
        if self.predictor == "network":
            for name in ("kernels", "inducing_points"):
                check_unused(self, name, _USED_ONLY)
