"""A whole training run, its report, and a search over such runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from math import inf
from typing import Any, get_origin

from molattn.config.base import COMMON, COMMON_IN_TRAIN, FIXED, RunConfig
from molattn.config.data import DataConfig
from molattn.config.fine_tuning import FineTuningConfig
from molattn.config.gaussian_process import DEFAULT_KERNELS, GaussianProcessConfig
from molattn.config.network import NetworkConfig
from molattn.config.training import DEFAULT_EPOCHS, SupervisedConfig
from molattn.config.validation import check, check_unused
from molattn.errors import InputError, quoted

__all__ = ["ReportConfig", "TrainConfig", "TuneConfig"]

_PRETRAINED = ("base", "base-large", "base-small")  # whose heads are not taken over


@dataclass(frozen=True)
class ReportConfig:
    """How a trained model is evaluated.

    Args:
        baselines: Also score a constant and a random forest.
        interval: Nominal coverage of the prediction intervals reported for the test rows.
        bootstrap: Bootstrap samples for 95% confidence intervals of the test scores; 0 for none.
    """

    baselines: bool = field(default=True, metadata=COMMON_IN_TRAIN)
    interval: float = 0.9
    bootstrap: int = 1000

    def __post_init__(self) -> None:
        check(self, "interval", lambda level: 0.0 < level < 1.0, "a number between 0 and 1")
        check(self, "bootstrap", lambda n: 0 <= n <= 10**6, "a whole number from 0 to 1000000", int)


@dataclass(frozen=True, repr=False)
class TrainConfig(RunConfig):
    """Everything that determines a training run; written as ``config.yaml`` into its folder.

    Args:
        file: The table.
        data: Its columns, and how its rows are split.
        network: The network.
        training: How it is trained.
        report: How it is evaluated.
        fine_tuning: The pretrained model that the training starts from, if any.
        gaussian_process: The Gaussian process beside the network, if any.
    """

    file: str
    data: DataConfig = field(metadata=FIXED)
    network: NetworkConfig
    training: SupervisedConfig
    report: ReportConfig = field(default_factory=ReportConfig, metadata=FIXED)
    fine_tuning: FineTuningConfig = field(default_factory=FineTuningConfig)
    gaussian_process: GaussianProcessConfig = field(
        default_factory=GaussianProcessConfig, metadata=FIXED
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network.partner != "concat" and self.data.partner_column is None:
            raise InputError(f"--partner {self.network.partner} needs --partner-column")
        for has_none, option in (
            (self.data.validation_size == 0.0, "--validation-size 0"),
            (self.data.final, "--final"),
        ):
            if has_none:
                reason = f"cannot be used with {option}: no validation rows could choose the epoch"
                for name in ("checkpoint", "patience"):
                    check_unused(self.training, name, reason)
        if self.gaussian_process.predictor == "gaussian_process":
            self._check_without_training()
        if self.kernels == ("descriptors",) and self.data.partner_column is not None:
            raise InputError(
                "--kernels descriptors cannot be used with --partner-column, as it does not "
                "compare second molecules; add morgan or another kernel"
            )
        if "descriptors" in self.kernels and self.data.descriptors == "none":
            raise InputError("--kernels: descriptors needs --descriptors lipinski or all")

    def _check_without_training(self) -> None:
        """Check that no option is of a network in training, which there is none of."""
        reason = "cannot be used with --predictor gaussian_process"
        given = self.fine_tuning.init_from
        # The network of a given model is checked when it is loaded; its head, and how it combines
        # second molecules, decide what is taken over.
        for one in fields(NetworkConfig):
            is_own = not one.metadata.get("from_pretrained", True)
            if (
                given in ("auto", "none")
                or "dropout" in one.name
                or (is_own and given in _PRETRAINED)
            ):
                check_unused(self.network, one.name, reason)
        for one in fields(SupervisedConfig):
            # Earlier versions wrote the default number of epochs into config.yaml.
            is_default = one.name == "epochs" and self.training.epochs == DEFAULT_EPOCHS
            if one.name not in ("seed", "threads", "device") and not is_default:
                check_unused(self.training, one.name, reason)
        if self.training.device == "gpu":
            raise InputError(f"--device gpu {reason}")
        self.fine_tuning.check_unset(reason)
        for name in ("task_weights", "morgan_counts"):
            check_unused(self.data, name, reason)
        if "embedding" not in self.kernels:
            if given not in ("auto", "none", "base"):
                raise InputError(f"--init-from {reason} without embedding in --kernels")
        elif given == "none":
            raise InputError(
                "--predictor gaussian_process --init-from none: the embedding of random weights "
                "is not informative; leave embedding out of --kernels"
            )

    @property
    def kernels(self) -> tuple[str, ...]:
        """Kernels of the Gaussian process; empty = there is none."""
        process = self.gaussian_process
        if process.predictor == "network":
            return ()
        if process.kernels:
            return process.kernels
        has_descriptors = self.data.descriptors != "none"
        return (*DEFAULT_KERNELS, "descriptors") if has_descriptors else DEFAULT_KERNELS

    @classmethod
    def from_options(cls, file: str, options: Mapping[str, Any]) -> "TrainConfig":
        """Create a run from options by name, as keyword arguments give them.

        Args:
            file: The table.
            options: Options of any section; the others keep their defaults. An option that takes
                several values accepts a list of them or a single one.

        Raises:
            InputError: An unknown option, or a value that an option cannot have.
        """
        known = cls.options()
        sections: dict[str, dict[str, Any]] = {section: {} for section in cls.sections()}
        for name, value in options.items():
            if name not in known:
                close = get_close_matches(name, known, n=1)
                hint = f", did you mean {quoted(close[0])}?" if close else ""
                raise InputError(f"unknown option {quoted(name)}{hint}")
            if get_origin(known[name].kind) is tuple:
                is_scalar = isinstance(value, str) or getattr(value, "ndim", 1) == 0
                several = isinstance(value, Iterable) and not is_scalar
                value = tuple(value) if several else () if value is None else (value,)
            sections[known[name].section][name] = value
        parts: dict[str, Any] = {
            name: kind(**sections[name]) for name, kind in cls.sections().items()
        }
        return cls(file, **parts)


@dataclass(frozen=True)
class TuneConfig:
    """How long ``molattn tune`` searches.

    Args:
        trials: Total number of trials; by default 50.
        timeout: Seconds after which no new trial starts.
        prune: Stop a trial whose best validation loss is worse than the median at that epoch.
    """

    trials: int | None = field(default=None, metadata=COMMON)
    timeout: float | None = field(default=None, metadata=COMMON)
    prune: bool = True

    def __post_init__(self) -> None:
        check(self, "trials", lambda n: n >= 1, "a whole number of at least 1", int)
        check(self, "timeout", lambda seconds: 0.0 < seconds < inf, "a positive number")
