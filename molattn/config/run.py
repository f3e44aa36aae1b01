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
        data = self.data
        check_unused(
            self.network, (data.partner_column is None, "partner", "needs --partner-column")
        )
        reason = "cannot be used without validation rows, by --final or --validation-size 0"
        has_none = data.final or data.validation_size == 0.0
        check_unused(self.training, (has_none, "checkpoint patience", reason))
        if self.gaussian_process.predictor == "gaussian_process":
            self._check_without_training()
        if self.kernels == ("descriptors",) and data.partner_column is not None:
            reason = "expected another kernel beside descriptors with --partner-column"
            raise InputError(reason, option="kernels")
        if "descriptors" in self.kernels and data.descriptors == "none":
            reason = "descriptors needs --descriptors lipinski or all"
            raise InputError(reason, option="kernels")

    def _check_without_training(self) -> None:
        """Check that no option is of a network in training, which there is none of."""
        reason = "cannot be used with --predictor gaussian_process"
        start = self.fine_tuning.init_from
        # The network of another model is checked when that is loaded.
        is_known = start in ("auto", "none", "base", "base-large", "base-small")
        names = {one.name for one in fields(NetworkConfig)}
        check_unused(self.network, (is_known, " ".join(sorted(names)), reason))
        names = {one.name for one in fields(SupervisedConfig)} - {"seed", "threads", "device"}
        check_unused(self.training, (True, " ".join(sorted(names)), reason))
        check_unused(self.data, (True, "task_weights morgan_counts", reason))
        self.fine_tuning.check_unset(reason)
        if "embedding" in self.kernels and start == "none":
            reason = "the embedding of random weights is not informative; leave it out of --kernels"
            raise InputError(f"{reason}, or use another model", option="init_from")

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
