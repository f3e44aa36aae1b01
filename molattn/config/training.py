"""Options of networks and their training: a training run, a pretraining run, and a search."""

from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Annotated, Any, Literal, Self, get_args

from annotated_types import Interval, MinLen
from pydantic import BeforeValidator

from molattn.config.base import (
    COMMON,
    RESUMABLE,
    BelowOne,
    Between,
    Count,
    Fraction,
    Name,
    NonNegative,
    NonNegativeInt,
    Positive,
    RunConfig,
    Threads,
    Unique,
    Width,
    check_unused,
    checked,
)
from molattn.config.data import DataConfig, FileOptions, MoleculeLimits
from molattn.errors import InputError

Checkpoint = Literal["best", "last"]
Precision = Literal["auto", "fp32", "bf16"]
Device = Literal["auto", "cpu", "gpu"]
Freeze = Literal["none", "embeddings", "encoder"]
Kernel = Literal["morgan", "atom_pairs", "torsions", "feature_morgan", "embedding", "descriptors"]

Target = Literal["descriptors", "morgan", "atom_pairs", "torsions", "atoms", "bonds", "columns"]

DEFAULT_EPOCHS = 30
DEFAULT_KERNELS: tuple[Kernel, ...] = ("morgan", "atom_pairs", "embedding")
_OWN = {"from_pretrained": False}  # a run does not take it over from a pretrained model
LAYER_ARGUMENTS = {
    **{name: name for name in ("score", "combine", "gate", "edge_value", "update_edges")},
    **{"edge_width": "edge_dim", "walk_length": "edge_dim", "attention_dropout": "dropout"},
}
"""Options that go to the attention layer, if it has them, each with the argument that it sets."""


def _assignments(arguments: Any) -> Any:
    is_mapping = isinstance(arguments, Mapping)
    return (
        tuple(f"{name}={value}" for name, value in arguments.items()) if is_mapping else arguments
    )


_Assignments = Annotated[tuple[str, ...], BeforeValidator(_assignments)]


@checked
class NetworkConfig:
    """The network.

    Layers, scores, combinations of heads, prediction heads and readouts are named in registries of
    :mod:`molattn.nn`, to which you can add your own; those of molattn are below.

    Args:
        width: Hidden size of atoms.
        heads: Number of attention heads; must divide the width with --combine linear or concat.
            Another value starts from random weights, unless --init-from has it.
        layers: Number of attention blocks.
        edge_width: Hidden size of atom pairs.
        walk_length: Number of random walk probabilities of pairs and atoms (RRWP); 0 for none.
        layer: Attention layer: edge_attention, gaan, mat, graph_network, egt, grit.
        graphs: Graphs that the blocks read in turn: pairs (all pairs of atoms), bonds; auto is
            bonds pairs for edge_attention, and pairs for other layers, with --update-edges or one
            block.
        radius: Let an atom attend only to atoms at most this many bonds away, in linear memory.
        score: Attention score: dot, scaled_dot, general, additive, gatv2.
        combine: How to combine the outputs of the heads: linear, concat, mean, max, weighted.
        gate: Gate each attention head (GaAN).
        edge_value: Add pair features to the values as well as the keys.
        update_edges: Update pair features in each block but the last.
        layer_options: Other arguments of the layer's class, such as clip=3; in Python also a
            dictionary. With attn_bias=slopes each head learns how far to look, as in ALiBi, with
            attn_bias=linear pair features add to the logits, as in Graphormer, with attn_bias=null
            nothing does; attn_bias=auto has slopes for edge_attention. Other options replace it.
        self_loops: Let an atom attend to itself.
        norm: Normalization in the attention blocks: layer, batch (over the atoms of a batch), or
            auto (batch if blocks read bonds and pairs in turn, else layer).
        dropout: Dropout rate in the attention blocks.
        head: Prediction head: mlp, fourier, both, or auto (fourier for classes alone, else both).
        head_dropout: Dropout rate in the prediction head.
        attention_dropout: Dropout rate of the attention weights.
        readout: Readout: one or more pooling functions, joined by +: mean, sum, max, min, std,
            median, softmax, variance_preserving, attentional, deep_sets, set2set, set_transformer,
            pma.
    """

    width: Width = 128
    heads: Width = 8
    layers: Annotated[int, Interval(ge=0, le=1000)] = 4
    edge_width: Width = 16
    walk_length: Annotated[int, Interval(ge=0, le=1000)] = 0
    layer: str = "edge_attention"
    graphs: Annotated[
        tuple[Literal["auto", "bonds", "pairs"], ...],
        BeforeValidator(lambda value: tuple(value.split()) if isinstance(value, str) else value),
    ] = ("auto",)
    radius: Width | None = field(default=None, metadata=_OWN)
    score: str = "scaled_dot"
    combine: str = "linear"
    gate: bool = False
    edge_value: bool = True
    update_edges: bool = False
    layer_options: _Assignments = ("attn_bias=auto",)
    self_loops: bool = True
    norm: Literal["auto", "layer", "batch"] = "auto"
    dropout: Fraction = field(default=0.1, metadata=_OWN)
    head: str = field(default="auto", metadata=_OWN)
    head_dropout: Fraction = field(default=0.5, metadata=_OWN)
    attention_dropout: BelowOne = field(default=0.0, metadata=_OWN)
    readout: str = "attentional+variance_preserving"


@checked
class TrainingLoopConfig:
    """Options of every training loop, with or without labels.

    Args:
        epochs: Maximum number of epochs.
        checkpoint: Epoch whose weights are saved: best (lowest validation loss) or last.
        patience: Stop after this many epochs without a better validation loss, and keep the
            last weights (--checkpoint). Epochs in which only the head is trained do not count.
        max_hours: Time limit in hours for each network; --resume may change it.
        batch_size: Number of molecules per batch, on all devices.
        learning_rate: Peak learning rate, reached after the warm-up.
        warmup: Fraction of steps used for learning-rate warm-up.
        schedule: Learning-rate schedule after the warm-up.
        weight_decay: Weight decay of AdamW.
        gradient_clip: Clip the gradient to this norm; 0 for no clipping.
        precision: Floating-point precision: fp32, bf16 (mixed precision), or auto (bf16 for a
            network at least 256 wide on a CPU with AMX).
        seed: Random seed of split, weights and row order.
        device: Device to train on.
        devices: Number of GPUs, or of processes on CPUs, to train on; --resume may change it.
        threads: Number of CPU threads per process; more than one is faster only for wide networks.
        checkpoint_steps: Steps between the checkpoints that --resume uses; 0 for one per epoch.
    """

    epochs: Count | None = field(default=DEFAULT_EPOCHS, metadata=COMMON)
    checkpoint: Checkpoint = field(default="last", metadata=COMMON)
    patience: Count | None = field(default=None, metadata=COMMON)
    max_hours: Positive | None = field(default=None, metadata=RESUMABLE | COMMON)
    batch_size: Count = field(default=32, metadata=COMMON)
    learning_rate: Positive = field(default=1e-3, metadata=COMMON)
    warmup: Fraction = 0.1
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    weight_decay: NonNegative = 0.01
    gradient_clip: NonNegative = 1.0
    precision: Precision = "auto"
    seed: Annotated[int, Interval(ge=0, lt=2**32)] = field(default=0, metadata=COMMON)
    device: Device = field(default="auto", metadata=COMMON)
    devices: Count = field(default=1, metadata=RESUMABLE)
    threads: Threads = 1
    checkpoint_steps: NonNegativeInt = 0

    @property
    def num_epochs(self) -> int:
        """The maximum number of epochs; 30 by default."""
        return DEFAULT_EPOCHS if self.epochs is None else self.epochs


@checked
class SupervisedConfig(TrainingLoopConfig):
    """How a model is trained on labels.

    By default for 30 epochs or, if all targets are classes, for as many as 1,500 steps take, from
    10 to 30.

    Args:
        epochs: Maximum number of epochs (default: at most 30).
        ensemble: Number of networks to average over.
        loss: Loss of regression targets; huber is linear beyond one standard deviation.
        label_smoothing: Fraction of label weight spread evenly over all classes.
        balance_classes: Weight classes in the loss by their inverse frequency.
        positive_weight: Weight of the positive class in the loss of binary targets.
    """

    epochs: Count | None = field(default=None, metadata=COMMON)
    ensemble: Annotated[int, Interval(ge=1, le=1000)] = field(default=1, metadata=COMMON)
    loss: Literal["mse", "mae", "huber"] = "mse"
    label_smoothing: BelowOne = 0.0
    balance_classes: bool = False
    positive_weight: Positive = 1.0

    def __post_init__(self) -> None:
        if self.seed + self.ensemble > 2**32:
            message = f"got {self.seed}, expected at most 2**32 with --ensemble {self.ensemble}"
            raise InputError(message, option="seed")
        reason = "cannot be used with --balance-classes"
        check_unused(self, (self.balance_classes, "positive_weight", reason))

    def members(self) -> list[Self]:
        """Return the options of each ensemble member: one network, with successive seeds."""
        return [
            replace(self, ensemble=1, seed=seed)
            for seed in range(self.seed, self.seed + self.ensemble)
        ]


@checked
class FineTuningConfig:
    """The pretrained model from which training starts.

    It must have the network options of the run, except those of its head and of dropout; where it
    does not, ``auto`` means training from scratch.

    Args:
        init_from: Model to fine-tune: base, base-large, base-minimol, base-small, a folder, none,
            or auto (base if it fits).
        freeze: Pretrained weights to freeze; N freezes the embeddings and the first N blocks. auto
            freezes the encoder below a new head if the table has at most 2,500 labels, all classes.
        backbone_lr_scale: Multiplier of the learning rate for pretrained weights.
        head_steps: Initial steps in which only a new head is trained; at most half of all steps.
    """

    init_from: Name = field(default="auto", metadata=COMMON)
    freeze: NonNegativeInt | Literal["auto"] | Freeze = "auto"
    backbone_lr_scale: Fraction = field(default=0.5, metadata=COMMON)
    head_steps: NonNegativeInt = 500

    def __post_init__(self) -> None:
        if self.init_from == "none":
            self.check_unset("needs a pretrained model (--init-from)")

    def check_unset(self, reason: str) -> None:
        """Raise an :class:`molattn.errors.InputError` if an option but ``init_from`` is set."""
        names = "backbone_lr_scale head_steps"
        check_unused(self, (True, names, reason), (self.freeze != "none", "freeze", reason))


@checked
class GaussianProcessConfig:
    """The Gaussian process, which predicts from similarity to the training molecules.

    Its kernel is the mean of a Tanimoto kernel of each kind of substructure counts and a Gaussian
    kernel of the network's embedding and, with ``descriptors``, one of RDKit descriptors.

    Args:
        predictor: What predicts: a network, a Gaussian process, or the mean of both, weighted by
            their errors on the validation rows.
        kernels: Kernels: morgan, atom_pairs, torsions, feature_morgan, embedding, descriptors. By
            default morgan, atom_pairs, embedding, and descriptors if they raise the likelihood.
        inducing_points: Most inducing points, a quarter more with auxiliary columns, up to twice
            as many for targets of different rows; with no more rows than that it is exact.
    """

    predictor: Literal["both", "network", "gaussian_process"] = "both"
    kernels: Annotated[tuple[Kernel, ...], Unique] = ()
    inducing_points: Annotated[int, Interval(ge=1, le=20_000)] = 2000

    def __post_init__(self) -> None:
        reason = "is used only with a Gaussian process (--predictor)"
        check_unused(self, (self.predictor == "network", "kernels inducing_points", reason))


@checked
class ReportConfig:
    """How a trained model is evaluated.

    Args:
        baselines: Also score a constant and a random forest.
        interval: Nominal coverage of the prediction intervals reported for the test rows.
        bootstrap: Bootstrap samples for 95% confidence intervals of the test scores; 0 for none.
        title: Title of the report; by default the name of the table.
    """

    baselines: bool = field(default=True, metadata=COMMON)
    interval: Between = 0.9
    bootstrap: Annotated[int, Interval(ge=0, le=10**6)] = 1000
    title: Name | None = None


@checked
class TrainConfig(RunConfig):
    """Everything that determines a training run; written as ``config.yaml`` into its folder."""

    file: str = ""
    data: DataConfig = field(default_factory=DataConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    training: SupervisedConfig = field(default_factory=SupervisedConfig)
    report: ReportConfig = field(default_factory=ReportConfig)
    fine_tuning: FineTuningConfig = field(default_factory=FineTuningConfig)
    gaussian_process: GaussianProcessConfig = field(default_factory=GaussianProcessConfig)

    def __post_init__(self) -> None:
        data = self.data
        reason = "cannot be used without validation rows, by --validation-size 0 or of the final "
        reason += "model after --folds (to leave it out: --no-final)"
        has_none = data.trains_final or data.validation_size == 0.0
        check_unused(self.training, (has_none, "checkpoint patience", reason))
        if not self.trains_network:
            self._check_without_training()
        if self.kernels == ("descriptors",) and data.partner_column is not None:
            reason = "expected another kernel beside descriptors with --partner-column"
            raise InputError(reason, option="kernels")
        if "descriptors" in self.kernels and data.descriptors == "none":
            reason = "descriptors needs --descriptors lipinski or all"
            raise InputError(reason, option="kernels")

    def _check_without_training(self) -> None:
        """Check that no option of a network is set, as only a Gaussian process is fitted."""
        reason = "cannot be used with --predictor gaussian_process"
        start = self.fine_tuning.init_from
        # The network of another model is checked when that is loaded.
        is_known = start in ("auto", "none", "base", "base-large", "base-minimol", "base-small")
        # In graphs and norm, packaged models differ from new networks.
        names = {option.name for option in fields(NetworkConfig)} - {"graphs", "norm"}
        check_unused(self.network, (is_known, " ".join(sorted(names)), reason))
        names = {option.name for option in fields(SupervisedConfig)} - {"seed", "threads", "device"}
        check_unused(self.training, (True, " ".join(sorted(names)), reason))
        data_names = "task_weights morgan_counts auxiliary_weight charge_columns"
        check_unused(self.data, (True, data_names, reason))
        self.fine_tuning.check_unset(reason)
        if "embedding" in self.kernels and start == "none":
            reason = "the embedding of random weights is not informative; leave it out of --kernels"
            raise InputError(f"{reason}, or use another model", option="init_from")

    @property
    def trains_network(self) -> bool:
        """Whether a network is trained, and not only a Gaussian process."""
        return self.gaussian_process.predictor != "gaussian_process"

    @property
    def kernels(self) -> tuple[str, ...]:
        """Kernels of the Gaussian process; empty = there is none."""
        gp = self.gaussian_process
        if gp.predictor == "network" or gp.kernels:
            return gp.kernels
        others = () if self.data.descriptors == "none" else ("descriptors",)
        return (*DEFAULT_KERNELS, *others)


@checked
class MoleculesConfig(MoleculeLimits, FileOptions):
    """The molecules of pretraining, and how they are masked.

    Args:
        smiles_column: Column of SMILES.
        exclude: Tables whose molecules (SMILES or InChIKeys) are excluded, such as test sets: those
            of the same connectivity, of salts also without usual counterions and solvents.
        max_atoms: Maximum number of atoms, not counting implicit hydrogens.
        validation_molecules: Number of validation molecules (at most 10% of all).
        masked_molecules: Fraction of the molecules in a batch in which atoms are masked.
        masked_atoms: Fraction of the atoms of a masked molecule that are masked.
        featurizer: Name of the featurizer for atoms and bonds.
        data_note: Text about the data for the model card, such as licenses.
        pretraining_columns: Numeric columns, or patterns such as emb_*, to predict too.
    """

    smiles_column: str = field(default="smiles", metadata=COMMON)
    exclude: tuple[str, ...] = field(default=(), metadata=COMMON)
    max_atoms: Count = field(default=100, kw_only=True, metadata=COMMON)
    validation_molecules: Count = field(default=2000, metadata=COMMON)
    masked_molecules: Between = 0.3
    masked_atoms: Between = 0.15
    featurizer: Name = "default"
    data_note: str | None = None
    pretraining_columns: tuple[str, ...] = ()


@checked
class PretrainNetworkConfig(NetworkConfig):
    """The network of pretraining: no dropout, as there are too many molecules to overfit."""

    dropout: Fraction = 0.0
    head: str = "mlp"
    head_dropout: Fraction = 0.0


@checked
class PretrainLoopConfig(TrainingLoopConfig):
    """How the network is pretrained.

    Args:
        targets: What is predicted: descriptors, counts of substructures (morgan, atom_pairs,
            torsions), masked atoms and bonds, and the --pretraining-columns (columns).
        init_from: Model to continue from: base, base-large, base-minimol, base-small, a folder, or
            none.
    """

    epochs: Count = field(default=10, metadata=COMMON)
    checkpoint: Checkpoint = field(default="best", metadata=COMMON)
    batch_size: Count = field(default=64, metadata=COMMON)
    learning_rate: Positive = field(default=2e-3, metadata=COMMON)
    warmup: Fraction = 0.02
    checkpoint_steps: NonNegativeInt = 1000
    init_from: Name = field(default="none", metadata=COMMON)
    targets: Annotated[tuple[Target, ...], MinLen(1), Unique] = get_args(Target)


@checked
class PretrainConfig(RunConfig):
    """Everything that determines a pretraining run; written as ``config.yaml`` into its folder."""

    files: tuple[str, ...] = ()
    molecules: MoleculesConfig = field(default_factory=MoleculesConfig)
    network: PretrainNetworkConfig = field(default_factory=PretrainNetworkConfig)
    training: PretrainLoopConfig = field(default_factory=PretrainLoopConfig)

    def __post_init__(self) -> None:
        has_columns = "columns" in self.training.targets
        reason = "needs columns in --targets"
        check_unused(self.molecules, (not has_columns, "pretraining_columns", reason))
        check_unused(self.network, (True, "radius", "cannot be used in pretraining"))


@checked
class TuneConfig:
    """How long ``molattn tune`` searches.

    Args:
        trials: Total number of trials; by default 50.
        timeout: Seconds after which no new trial starts.
        prune: Stop a trial whose best validation loss is worse than the median at that epoch.
    """

    trials: Count | None = None
    timeout: Positive | None = None
    prune: bool = True
