"""Fine-tuning: training from the weights of a trained model."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from molattn.chem.featurizer import Featurizer
from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.config import FineTuningConfig
from molattn.errors import InputError
from molattn.model.artefact import PACKAGED, ModelFiles, find_model, is_packaged
from molattn.model.model import MolAttn

_BACKBONE = ("atom_embedding", "pair_embedding", "walk_embedding", "encoder", "readout")
_HEAD = ("head",)


@dataclass(frozen=True)
class FineTuningPlan:
    """How to train a model that starts from pretrained weights; by default, from random ones."""

    # Of pretrained weights by name; 1 for others. One below 1 preserves more of what was learned
    # in pretraining (Howard and Ruder 2018).
    learning_rate_factors: Mapping[str, float] = field(default_factory=dict)
    # In which pretrained weights are frozen, at most half of all, so that the gradients of an
    # untrained head do not distort them (Kumar et al. 2022).
    head_steps: int = 0


@dataclass(frozen=True)
class PretrainedWeights:
    """A trained model whose weights initialize new models."""

    name: str
    model: MolAttn
    digest: str
    inherited: str = ""  # for the log: options of the network that the run has from it

    @classmethod
    def load(cls, name: str, featurizer: Featurizer) -> "PretrainedWeights":
        """Load a model by its name or folder; it must have this featurizer."""
        files = ModelFiles.read(find_model(PACKAGED / name if is_packaged(name) else name))
        files.check()
        model = MolAttn.from_files(files)
        if model.config.featurizer != featurizer:
            reason = f"{name} has another featurizer; select it with --featurizer"
            raise InputError(reason, option="init_from")
        # A path is made absolute, so that the run can be repeated from anywhere.
        is_path = Path(name).exists() and not is_packaged(name)
        return cls(str(Path(name).absolute()) if is_path else name, model, files.digest)

    @property
    def fingerprints(self) -> FingerprintIndex | None:
        """Fingerprints of its training molecules, if saved."""
        return self.model.uncertainty and self.model.uncertainty.fingerprints

    def apply(
        self, model: MolAttn, member: int, options: FineTuningConfig, *, keeps_head: bool = False
    ) -> tuple[FineTuningPlan, str]:
        """Copy the weights into a new model of one network, and freeze some of them.

        Embeddings, encoder, readout and projection are copied; with the head also the target
        transforms and the scaling of targets and features. The members of an ensemble start
        from the members of the pretrained model in turn.

        Returns:
            How to train the model, and a log message.

        Raises:
            InputError: There are fewer blocks than to be frozen, or a custom encoder or readout.
        """
        for source in (model, self.model):
            for part, kind in source.config.custom_parts:
                if part != "head":
                    reason = f"{self.name} cannot be used with a custom {part} ({kind})"
                    raise InputError(reason, option="init_from")
        index = member % len(self.model.nets)
        (new,) = model.nets
        old = self.model.nets[index]
        children = dict(old.named_children())
        names = [*_BACKBONE, *(name for name in _HEAD if keeps_head and name in children)]
        for name in names:
            new.get_submodule(name).load_state_dict(children[name].state_dict())
        new.register_buffer("projection", copy.deepcopy(old.get_buffer("projection")))
        if keeps_head:
            for name, buffer in model.named_buffers(recurse=False):
                buffer.copy_(self.model.get_buffer(name))
            transforms = self.model.config.target_transforms
            model.config = replace(model.config, target_transforms=transforms)
        assert options.freeze != "auto"  # resolved before
        model.freeze(options.freeze)
        prefixes = tuple(f"nets.0.{name}." for name in names)
        trained = (name for name, _ in model.named_parameters() if name.startswith(prefixes))
        factors = dict.fromkeys(trained, options.backbone_lr_scale)
        plan = FineTuningPlan(factors, 0 if keeps_head else options.head_steps)
        message = f"Starting from the pretrained model {self.name}{self.inherited}"
        if len(self.model.nets) > 1:
            message += f", member {index + 1}"
        message += " (with its head)" if keeps_head else " (new head)"
        if plan.head_steps:
            message += f"; first only the head is trained (--head-steps {options.head_steps})"
        weights = [*model.parameters()]
        if frozen := sum(weight.numel() for weight in weights if not weight.requires_grad):
            message += (
                f"; {frozen:,} of {sum(weight.numel() for weight in weights):,} weights frozen"
            )
        return plan, message
