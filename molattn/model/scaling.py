"""Scaling of labels and extra features of molecules by those of the training rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch_geometric.data import Batch, Data

from molattn.graph import MoleculeBatch
from molattn.model.config import MolAttnConfig
from molattn.model.outputs import class_probabilities
from molattn.model.target_transform import TargetTransform, own_units, transformed_labels
from molattn.task import output_slices

Array = NDArray[np.float64]

CLIP = 3.0
"""Standard deviations from the training mean to which calculated features are clipped."""

_MISSED = 0.25  # variance of the errors of a model, in that of the labels
_SAME_SCALING = 1e-6  # largest difference, relative to the scale: rounding in single precision


def number_type() -> torch.dtype:
    """Return the type of features and labels before they are scaled: double precision.

    Values may be large compared with their differences. Apple's GPUs have single precision only.
    """
    return torch.float32 if torch.backends.mps.is_available() else torch.float64


def table_features(features: ArrayLike | None, rows: int, config: MolAttnConfig) -> Tensor | None:
    """Convert extra features ``[rows, len(config.features)]`` to a tensor; None stays None.

    Columns of a DataFrame are found by name.
    """
    if features is None:
        return None
    names = [*config.features]
    expected = (rows, len(names))
    if hasattr(features, "columns"):
        columns = [*features.columns]  # pyright: ignore[reportAttributeAccessIssue]
        if sorted(columns) != sorted(names):
            raise ValueError(f"features: got the columns {columns}, expected {names}")
        features = features[names]  # pyright: ignore
    values = torch.tensor(np.array(features, dtype=np.float64, order="C"), dtype=number_type())
    if values.shape != expected or not bool(values.isfinite().all()):
        raise ValueError(f"features: got {tuple(values.shape)}, expected finite numbers {expected}")
    return values


def joined_numbers(
    batch: MoleculeBatch | Data, features: Tensor | None, config: MolAttnConfig
) -> Tensor | None:
    """Join all extra features of molecules in own units, ``[num_graphs, config.num_numbers]``.

    Features from the table, ``[num_graphs, len(config.features)]``, are followed by those
    calculated for the molecule and for the second molecule; NaN where undefined. None without any.

    Raises:
        ValueError: Features or second molecules that are missing, or not used by the model.
    """
    count = batch.num_graphs if isinstance(batch, (MoleculeBatch, Batch)) else 1
    partners = getattr(batch, "partners", None)
    tables = [features, getattr(batch, "numbers", None)]
    if partners is not None and partners.numbers is not None:
        tables.append(partners.numbers[batch.partner_index])
    tables = [table for table in tables if table is not None]
    width = sum(table.size(-1) for table in tables)
    fits = all(len(table) == count for table in tables) and width == config.num_numbers
    if not fits or (partners is not None) != config.has_partner:
        raise ValueError(
            f"features: got {width} for {count} molecules, expected {config.num_numbers} "
            f"and {'' if config.has_partner else 'no '}second molecules, as of the model's "
            f"featurize and collate and in the columns {config.features}"
        )
    return torch.cat(tables, dim=-1) if tables else None


def scaled_numbers(numbers: Tensor, mean: Tensor, scale: Tensor, from_table: int) -> Tensor:
    """Scale the output ``[n, F]`` of :func:`joined_numbers` by training means and deviations.

    All but the first ``from_table`` features are calculated: they are clipped to plus and minus
    ``CLIP``, and undefined ones become 0, the mean.
    """
    scaled = (numbers - mean) / scale
    calculated = scaled[:, from_table:].nan_to_num(nan=0.0).clamp(-CLIP, CLIP)
    return torch.cat([scaled[:, :from_table], calculated], dim=-1)


@dataclass(frozen=True, eq=False)
class Scaling:
    """Means and standard deviations of transformed labels and of extra features.

    Labels are transformed (``config.target_transforms``), then standardized. The tensors are the
    buffers of a model.
    """

    config: MolAttnConfig
    target_mean: Tensor  # [num_tasks]
    target_scale: Tensor  # [num_tasks]
    feature_mean: Tensor  # [num_numbers]
    feature_scale: Tensor  # [num_numbers]
    dtype: torch.dtype  # of the networks, which read and predict scaled values

    def set_targets(self, mean: ArrayLike, scale: ArrayLike) -> None:
        """Set mean and standard deviation of transformed labels; 0 and 1 of classes."""
        _fill("target", (self.target_mean, self.target_scale), mean, scale)

    def set_features(self, mean: ArrayLike, scale: ArrayLike) -> None:
        """Set mean and standard deviation of extra features."""
        _fill("feature", (self.feature_mean, self.feature_scale), mean, scale)

    def difference(self, other: "Scaling") -> str:
        """Name the first difference from another scaling; "" = none."""
        for what in ("target", "feature"):
            scale = getattr(self, f"{what}_scale").cpu()
            for name in (f"{what}_mean", f"{what}_scale"):
                # A mean may be much larger than the scale.
                change = getattr(self, name).cpu() - getattr(other, name).cpu()
                if bool((change.abs() > _SAME_SCALING * scale).any()):
                    return f"the {what} scaling"
        return ""

    def scaled_labels(self, targets: Tensor) -> Tensor:
        """Transform and standardize labels ``[..., num_tasks]``; classes and NaN stay."""
        targets = transformed_labels(targets, self.config.target_transforms)
        return ((targets - self.target_mean) / self.target_scale).to(self.dtype)

    def label_weights(
        self,
        targets: Array,
        stds: Array | None,
        weights: Array | None,
        means: Array | None = None,
    ) -> Array | None:
        r"""Return the weights of labels ``[n, num_tasks]``, or of rows ``[n]`` without ``stds``.

        A label whose standard error is :math:`s`, in standard deviations of the transformed labels,
        has a weight in proportion to :math:`1 / (1/4 + s^2)`, with mean 1 for each task, times the
        weight of its row. The quarter stands for what the model misses: the variance of the errors
        of a model with an R² of 0.75. Where no error is known it is the median, and where none is
        for a task, weights are 1.

        Args:
            targets: Labels in own units ``[n, num_tasks]``.
            stds: Their standard errors, NaN where unknown.
            weights: Weights of the rows ``[n]``; None = 1.
            means: Means of :meth:`std_weights` of other labels, which have the mean 1 in place of
                these, ``[num_tasks]``, NaN where unknown.
        """
        if stds is None:
            return weights
        columns = self.std_weights(targets, stds)
        scales = columns.mean(axis=0)
        if means is not None:
            scales = np.where(np.isnan(means), scales, means)
        label_weights = np.where(np.isnan(columns), 1.0, columns / scales)
        return label_weights if weights is None else label_weights * weights[:, None]

    def std_weights(self, targets: Array, stds: Array) -> Array:
        r"""Return :math:`1 / (1/4 + s^2)` of labels ``[n, num_tasks]``; see :meth:`label_weights`.

        It is NaN for a task of which no error is known.
        """
        std_weights = np.full(targets.shape, np.nan)
        transforms = self.config.target_transforms
        scales = self.target_scale.tolist()
        for index, (transform, scale) in enumerate(zip(transforms, scales, strict=True)):
            slopes = transform.log_jacobian(torch.from_numpy(targets[:, index])).exp().numpy()
            errors = stds[:, index] * slopes / scale
            is_measured = ~np.isnan(errors)
            if is_measured.any():
                errors = np.where(is_measured, errors, np.median(errors[is_measured]))
                std_weights[:, index] = 1.0 / (_MISSED + errors**2)
        return std_weights

    def scaled_features(
        self, batch: MoleculeBatch | Data, features: Tensor | None
    ) -> Tensor | None:
        """Return the scaled :func:`joined_numbers` of a batch."""
        numbers = joined_numbers(batch, features, self.config)
        if numbers is None:
            return None
        from_table = len(self.config.features)
        scaled = scaled_numbers(numbers, self.feature_mean, self.feature_scale, from_table)
        return scaled.to(self.dtype)

    def to_transformed(self, outputs: Array) -> Array:
        """Convert scaled regressions ``[..., num_outputs]`` to the transformed scale."""
        sizes = [task.num_outputs for task in self.config.tasks]  # a logit has mean 0 and scale 1
        mean = self.target_mean.cpu().numpy().repeat(sizes)
        scale = self.target_scale.cpu().numpy().repeat(sizes)
        return outputs * scale + mean

    def in_own_units(self, outputs: Array) -> Array:
        """Convert regressions on the transformed scale to own units, logits to probabilities."""
        tasks = self.config.tasks
        probabilities = class_probabilities(torch.from_numpy(outputs), tasks)
        return own_units(probabilities, tasks, self.config.target_transforms).numpy()

    def ends(
        self, mean: Array, half_widths: Array, is_percentage: Sequence[bool]
    ) -> tuple[Array, Array]:
        """Return the ends of intervals ``[n, num_tasks]`` in own units.

        Args:
            mean: Predictions on the transformed scale, ``[n, num_outputs]``.
            half_widths: Half of each width on this scale, ``[n, num_tasks]``.
            is_percentage: Whether predictions and intervals of a task end at 0 and 100.
        """
        low = half_widths.copy()
        high = half_widths.copy()
        slices = output_slices(self.config.tasks)
        for index, transform in enumerate(self.config.target_transforms):
            middle = mean[:, slices[index].start]
            width = half_widths[:, index]
            low[:, index] = _inverse(middle - width, transform)
            high[:, index] = _inverse(middle + width, transform)
            if is_percentage[index]:
                percent = torch.from_numpy(_inverse(middle, transform).clip(0.0, 100.0))
                middle = transform.forward(percent).numpy()
                is_finite = np.isfinite(width)
                for end, values in ((low, middle - width), (high, middle + width)):
                    end[is_finite, index] = _inverse(values, transform)[is_finite].clip(0.0, 100.0)
        return low, high


def _fill(what: str, buffers: tuple[Tensor, Tensor], mean: ArrayLike, scale: ArrayLike) -> None:
    values = torch.tensor(np.stack([np.asarray(mean), np.asarray(scale)]), dtype=number_type())
    if values.shape[1:] != buffers[0].shape or not bool((values[1] > 0).all()):
        raise ValueError(f"{what} scaling: expected {buffers[0].numel()} means and positive scales")
    for buffer, value in zip(buffers, values, strict=True):
        buffer.copy_(value)


def _inverse(values: Array, transform: TargetTransform) -> Array:
    """Convert transformed values to own units; infinite ones stay."""
    converted = transform.inverse(torch.from_numpy(values)).numpy()
    return np.where(np.isinf(values), values, converted)
