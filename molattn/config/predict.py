"""Options of predictions."""

from dataclasses import dataclass

from molattn.config.checks import check

__all__ = ["PredictConfig"]


@dataclass(frozen=True)
class PredictConfig:
    """How predictions are made.

    Args:
        smiles_column: Column that holds the SMILES.
        batch_size: Most molecules in a batch; large molecules go in smaller ones.
        threads: CPU threads; more pay for wide networks alone.
    """

    smiles_column: str = "smiles"
    batch_size: int = 64
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("batch_size", "threads"):
            check(self, name, lambda count: count >= 1, "a whole number of at least 1", int)
