"""Options of what a saved model does with a table."""

from dataclasses import dataclass

from molattn.config.validation import check
from molattn.errors import InputError

__all__ = ["EmbedConfig", "ExplainConfig", "PredictConfig", "TableConfig"]


@dataclass(frozen=True)
class TableConfig:
    """How a table is read by a saved model.

    Args:
        smiles_column: Column that holds the SMILES.
        partner_column: Column that holds the SMILES of the second molecule; by default the one the
            model was trained with.
        batch_size: Most molecules in a batch; large molecules go in smaller ones.
        threads: CPU threads; more pay for wide networks alone.
    """

    smiles_column: str = "smiles"
    partner_column: str | None = None
    batch_size: int = 64
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("batch_size", "threads"):
            check(self, name, lambda count: count >= 1, "a whole number of at least 1", int)


@dataclass(frozen=True)
class PredictConfig(TableConfig):
    """How predictions are made.

    Args:
        interval: Probability with which a number lies from NAME_low to NAME_high.
    """

    interval: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "interval", lambda level: 0.0 < level < 1.0, "a number between 0 and 1")


@dataclass(frozen=True)
class EmbedConfig(TableConfig):
    """How embeddings are made.

    Args:
        atoms: Write a row for each atom in place of one for each molecule: row (of the molecule in
            the input, from 1), atom (from 0), symbol, its embedding and error.
    """

    atoms: bool = False


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
