"""A whole training run, its report, and a search over such runs."""

from dataclasses import field, fields
from typing import Annotated

from annotated_types import Interval

from molattn.config.base import (
    COMMON,
    COMMON_IN_TRAIN,
    FIXED,
    Between,
    Count,
    Positive,
    RunConfig,
    check_unused,
    checked,
)
from molattn.config.data import DataConfig
from molattn.config.network import NetworkConfig
from molattn.config.training import (
    DEFAULT_KERNELS,
    FineTuningConfig,
    GaussianProcessConfig,
    SupervisedConfig,
)
from molattn.errors import InputError

__all__ = ["ReportConfig", "TrainConfig", "TuneConfig"]

_PRETRAINED = ("base", "base-large", "base-small")  # whose heads are not taken over


@checked
class ReportConfig:
    """How a trained model is evaluated.

    Args:
        baselines: Also score a constant and a random forest.
        interval: Nominal coverage of the prediction intervals reported for the test rows.
        bootstrap: Bootstrap samples for 95% confidence intervals of the test scores; 0 for none.
    """

    baselines: bool = field(default=True, metadata=COMMON_IN_TRAIN)
    interval: Between = 0.9
    bootstrap: Annotated[int, Interval(ge=0, le=10**6)] = 1000


@checked
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

    file: str = ""
    data: DataConfig = field(default_factory=DataConfig, metadata=FIXED)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    training: SupervisedConfig = field(default_factory=SupervisedConfig)
    report: ReportConfig = field(default_factory=ReportConfig, metadata=FIXED)
    fine_tuning: FineTuningConfig = field(default_factory=FineTuningConfig)
    gaussian_process: GaussianProcessConfig = field(
        default_factory=GaussianProcessConfig, metadata=FIXED
    )

    def __post_init__(self) -> None:
        if self.network.partner != "concat" and self.data.partner_column is None:
            raise InputError(f"--partner {self.network.partner} needs --partner-column")
        for has_none, option in (
            (self.data.validation_size == 0.0, "--validation-size 0"),
            (self.data.final, "--final"),
        ):
            if has_none:
                reason = f"cannot be used with {option}: no validation rows could choose the epoch"
                check_unused(self.training, reason, "checkpoint", "patience")
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
                check_unused(self.network, reason, one.name)
        names = {one.name for one in fields(SupervisedConfig)} - {"seed", "threads", "device"}
        check_unused(self.training, reason, *sorted(names))
        if self.training.device == "gpu":
            raise InputError(f"--device gpu {reason}")
        self.fine_tuning.check_unset(reason)
        check_unused(self.data, reason, "task_weights", "morgan_counts")
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


@checked
class TuneConfig:
    """How long ``molattn tune`` searches.

    Args:
        trials: Total number of trials; by default 50.
        timeout: Seconds after which no new trial starts.
        prune: Stop a trial whose best validation loss is worse than the median at that epoch.
    """

    trials: Count | None = field(default=None, metadata=COMMON)
    timeout: Positive | None = field(default=None, metadata=COMMON)
    prune: bool = True
