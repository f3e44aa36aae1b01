"""Explain the predictions of a model: scores of atoms and bonds, and attention weights."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rdkit import Chem

from molattn.chem.parse import Molecule, atom_numbers, check_list
from molattn.config import ExplainConfig
from molattn.errors import check_one_of
from molattn.explain.drawing import draw_png, draw_svg
from molattn.explain.instance import Instance
from molattn.explain.methods import METHODS, MethodOptions
from molattn.explain.target import find_target
from molattn.model.model import MolAttn
from molattn.record import MoleculeRecord
from molattn.utils.files import write_file

LEVEL = ExplainConfig.interval


@dataclass(frozen=True, eq=False)
class Explanation:
    r"""The prediction for one molecule, and the scores that one method gives its atoms and bonds.

    The scores of a signed method are contributions in ``unit``, and

    .. math::
        \mathrm{prediction} - \mathrm{baseline} = \sum_i \mathrm{atom\_scores}_i
        + \sum_k \mathrm{other\_scores}_k + \mathrm{residual}

    where the residual is at most ``tolerance`` in absolute value. A prediction in percent ends at 0
    and 100, but the residual is that of the value before. The scores of an unsigned method
    are never negative: they measure how important an atom is. The ``n`` atoms are in the order of
    ``smiles``, or of the RDKit molecule that was given.

    Args:
        smiles: The SMILES that was given, or that of the RDKit molecule; the standardized one, or
            the parent, if the model reads that and it is another molecule.
        target: The explained output: a task, or one class of a multiclass task.
        unit: Unit of the prediction: that of the task, ``log-odds`` for a class, empty if unknown.
        method: A name in :data:`molattn.explain.METHODS`.
        signed: Whether scores are contributions that add up, as above.
        prediction: The explained value, in ``unit``.
        probability: Predicted probability of a class, calibrated if the model is.
        low: Lower bound of the prediction interval, in ``unit``; None = no interval.
        high: Upper bound.
        confidence: ``high``, ``medium`` or ``low``, the grade of the prediction; None = unknown.
        expected_error: Expected absolute error in own units, or the rate of wrong classes.
        baseline: Prediction that the scores are relative to, of a molecule without its atoms:
            average ones (integrated gradients) or masked ones, with the features of
            ``other_scores`` at their training means; None for an unsigned method.
        symbols: Element of each atom.
        atom_numbers: Number of each atom in the molecule that was given, from 0, where explicit
            hydrogen atoms count.
        bonds: Pairs of bonded atoms.
        atom_scores: ``float64 [n]``.
        bond_scores: ``float64 [len(bonds)]``, not part of the sum; what they measure depends on
            the method.
        other_scores: Scores of the features of the whole molecule: ``feature columns``,
            ``descriptors`` and ``Morgan counts``; empty for an unsigned method.
        residual: See above; None for an unsigned method.
        tolerance: Largest residual that the method aims for; None for an unsigned method.
        attention: The attention weights of this prediction, before dropout, ``float32 [layers,
            heads, n receivers, n senders]``; they sum to 1 over the senders of a receiver, except
            for MAT. For an ensemble, the heads of all members are concatenated.
        gates: The gates of the heads, ``float32 [layers, heads, n]``; None if heads have no gates.
        head_names: Names of the heads, ``1`` and so on; ``2.1`` is the first head of member 2.
        mol: The molecule as the model reads it, without explicit hydrogen atoms; None if a SMILES
            was given.
    """

    smiles: str
    target: str
    unit: str
    method: str
    signed: bool
    prediction: float
    probability: Optional[float]
    low: Optional[float]
    high: Optional[float]
    confidence: Optional[str]
    expected_error: Optional[float]
    baseline: Optional[float]
    symbols: tuple[str, ...]
    atom_numbers: tuple[int, ...]
    bonds: tuple[tuple[int, int], ...]
    atom_scores: NDArray[np.float64]
    bond_scores: NDArray[np.float64]
    other_scores: dict[str, float]
    residual: Optional[float]
    tolerance: Optional[float]
    attention: NDArray[np.float32]
    gates: Optional[NDArray[np.float32]]
    head_names: tuple[str, ...]
    mol: Optional[Chem.Mol] = None

    @property
    def num_atoms(self) -> int:
        """Number of atoms ``n``."""
        return len(self.symbols)

    @property
    def atom_names(self) -> tuple[str, ...]:
        """Element and number of each atom, counted from 0 as RDKit does: ``C0``, ``C1``, ``O2``."""
        return tuple(map("{}{}".format, self.symbols, self.atom_numbers))

    @property
    def adds_up(self) -> Optional[bool]:
        """Whether the residual is within the tolerance; None for an unsigned method."""
        if self.residual is None or self.tolerance is None:
            return None
        return abs(self.residual) <= self.tolerance

    @property
    def score_limit(self) -> float:
        """Largest absolute score of an atom or bond, at which colors saturate."""
        return float(np.abs([*self.atom_scores, *self.bond_scores]).max())

    @property
    def caption(self) -> str:
        """What the colors of its drawing mean."""
        method = self.method.replace("_", " ")
        if not self.signed:
            return f"{method}: importance of each atom (unsigned)"
        target = f"{self.target} ({self.unit})" if self.unit else self.target
        others = (f"; {name}: {score:.3g}" for name, score in self.other_scores.items())
        others = "".join(others).replace("-", "\N{MINUS SIGN}")
        return f"{method}: contribution to {target}{others}"

    @property
    def named_attention(self) -> dict[str, tuple[str, ...]]:
        """Axes of ``attention`` in order, each with the labels along it."""
        return {
            "layer": tuple(str(layer) for layer in range(1, len(self.attention) + 1)),
            "head": self.head_names,
            "receiver": self.atom_names,
            "sender": self.atom_names,
        }

    def to_dict(self, *, with_attention: bool = True) -> dict[str, Any]:
        """Return JSON types, with nested lists for arrays; ``attention_axes`` labels attention."""
        omitted = {"mol"} if with_attention else {"mol", "attention", "gates"}
        values = {name: value for name, value in vars(self).items() if name not in omitted}
        for name, value in values.items():
            values[name] = value.tolist() if isinstance(value, np.ndarray) else value
        return {**values, "attention_axes": self.named_attention}

    def draw(self, width: int = 420, height: int = 340) -> str:
        """Draw the structure with atoms and bonds colored by score, as SVG text.

        ``width`` and ``height`` are in pixels, including the legend.
        """
        return draw_svg(self, width, height)

    def save(self, path: str | Path, width: int = 420, height: int = 340) -> None:
        """Write the drawing to a file, ``.svg`` or ``.png``, which has twice as many pixels.

        Raises:
            InputError: Another file extension.
        """
        ending = Path(path).suffix.lower()
        check_one_of("file extension", ending, (".svg", ".png"))
        data = draw_png(self, width, height) if ending == ".png" else self.draw(width, height)
        write_file(Path(path), data if isinstance(data, bytes) else data.encode())

    def _repr_html_(self) -> str:
        """Show the drawing in a notebook."""
        return self.draw()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.smiles!r}, {self.target}={self.prediction:.4g}, "
            f"method={self.method!r})"
        )


@overload
def explain(model: MolAttn, smiles: Molecule, method: str = ..., **options: Any) -> Explanation: ...


@overload
def explain(
    model: MolAttn, smiles: Iterable[Molecule], method: str = ..., **options: Any
) -> list[Explanation]: ...


def explain(
    model: MolAttn,
    smiles: Molecule | Iterable[Molecule],
    method: str = "integrated_gradients",
    *,
    target: Optional[str] = None,
    partners: Molecule | Iterable[Molecule] | None = None,
    features: Optional[ArrayLike] = None,
    interval: float = LEVEL,
    **options: Any,
) -> Explanation | list[Explanation]:
    """Score the atoms and bonds of molecules by their importance for a prediction.

    Args:
        model: The model.
        smiles: A SMILES or an RDKit molecule, or an iterable of them.
        method: A name in :data:`molattn.explain.METHODS`.
        target: A task, or one class of a multiclass task by its column of predictions
            (``phase_probability_solid``); None = the first task. Of a multiclass task without a
            class, the most probable class of each molecule is explained.
        partners: The second molecules, if the model takes pairs; their atoms are not scored.
        features: Table features ``[n, len(config.features)]``, if the model uses any.
        interval: Nominal coverage of the prediction interval.
        options: Options of the method, see :class:`molattn.explain.MethodOptions`.

    Returns:
        An explanation, or a list of explanations in the order of the molecules.

    Raises:
        InputError: An unknown method or target, or an invalid value.
        SmilesError: An invalid molecule.

    Example:
        >>> from molattn import MolAttn, MolAttnConfig
        >>> explanation = explain(MolAttn(MolAttnConfig(tasks=("logS",))), "CCO", "attention")
        >>> explanation.atom_scores.shape, explanation.attention.shape
        ((3,), (4, 8, 3, 3))
    """
    METHODS[method]  # refuses an unknown name before any molecule is read
    method_options = MethodOptions(**options)
    is_one = smiles is None or isinstance(smiles, Molecule)  # None is RDKit's invalid molecule
    molecules: Any = [smiles] if is_one else smiles
    seconds = [partners] if isinstance(partners, Molecule) else partners
    instances = read_instances(model, molecules, target, seconds, features, level=interval)
    explanations = [explain_instance(instance, method, method_options) for instance in instances]
    return explanations[0] if is_one else explanations


def read_instances(
    model: MolAttn,
    smiles: Iterable[Molecule],
    target: Optional[str] = None,
    partners: Optional[Iterable[Molecule]] = None,
    features: Optional[ArrayLike] = None,
    *,
    level: float = LEVEL,
) -> Iterator[Instance]:
    """Featurize and predict molecules to explain; for the arguments see :func:`explain`."""
    check_list("smiles", smiles)
    check_list("partners", partners)
    smiles = [*smiles]
    partners = None if partners is None else [*partners]
    is_calibrated = model.uncertainty is not None
    records = model.networks.read(smiles, partners, fingerprint=is_calibrated)
    return make_instances(model, [*zip(smiles, records, strict=True)], features, target, level)


def make_instances(
    model: MolAttn,
    molecules: Sequence[tuple[Molecule, MoleculeRecord]],
    features: Optional[ArrayLike],
    target: Optional[str],
    level: float,
) -> Iterator[Instance]:
    """Predict featurized molecules to explain, each given with its record."""
    records = [record for _, record in molecules]
    outputs = model.predictor.predict_outputs(records, features=features)
    predicted = model.predictor.prediction(outputs, records, level)
    as_written = model.config.written_task_indices
    rows = None if features is None else np.asarray(features, dtype=np.float64)
    for row, (molecule, record) in enumerate(molecules):
        values = predicted.prediction[row]
        row_target = find_target(model, target, values.tolist())
        value = float(values[row_target.outputs][row_target.index])
        task = row_target.task_index
        low = float(predicted.low[row, task])
        high = float(predicted.high[row, task])
        interval = (low, high) if math.isfinite(high - low) else (None, None)
        error = float(predicted.expected_error[row, task])
        yield Instance(
            *(model, molecule, (task in as_written and record.written) or record),
            *(row_target, value, interval),
            confidence=str(predicted.confidence[row, task]) or None,
            expected_error=None if math.isnan(error) else error,
            features=None if rows is None else rows[row],
        )


def explain_instance(instance: Instance, method: str, options: MethodOptions) -> Explanation:
    """Explain one molecule."""
    signed = METHODS[method].signed
    target = instance.target
    prediction = instance.prediction
    scores = METHODS[method](instance, options)
    residual = None
    if scores.baseline is not None:
        total = float(scores.atoms.sum()) + sum(scores.others.values())
        residual = prediction - scores.baseline - total
    weights, gates = instance.attention
    members, _, heads = weights.shape[:3]
    low, high = instance.interval
    is_mol = isinstance(instance.molecule, Chem.Mol)
    limits = instance.model.predictor.output_limits[:, target.outputs.start]
    return Explanation(
        smiles=instance.smiles,
        mol=instance.mol if is_mol or not instance.model.config.unify_drawings else None,
        target=target.name,
        unit=target.unit,
        method=method,
        signed=signed,
        prediction=float(np.clip(prediction, *limits)),
        probability=None if target.task.kind == "regression" else instance.predicted,
        low=low,
        high=high,
        confidence=instance.confidence,
        expected_error=instance.expected_error,
        baseline=scores.baseline,
        symbols=tuple(atom.GetSymbol() for atom in instance.mol.GetAtoms()),
        atom_numbers=atom_numbers(instance.mol),
        bonds=instance.bonds,
        atom_scores=scores.atoms,
        bond_scores=scores.bonds,
        other_scores=dict(scores.others),
        residual=residual,
        tolerance=options.tolerance * target.spread if signed else None,
        attention=_join_heads(weights),
        gates=None if gates is None else _join_heads(gates),
        head_names=tuple(
            f"{member}.{head}" if members > 1 else str(head)
            for member in range(1, members + 1)
            for head in range(1, heads + 1)
        ),
    )


def _join_heads(members: NDArray[np.float64]) -> NDArray[np.float32]:
    """Concatenate the heads of all members: ``[M, L, H, ...]`` to ``[L, M H, ...]``."""
    layers = np.moveaxis(members, 0, 1)
    count, members, heads, *atoms = layers.shape  # all 0 where the encoder has no such layers
    return layers.reshape(count, members * heads, *atoms).astype(np.float32)
