"""Explain the predictions of a model."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Optional, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rdkit import Chem

from molattn.chem.parse import Molecule, atom_numbers, check_list
from molattn.explain.explanation import Explanation
from molattn.explain.instance import Instance, baseline_atom
from molattn.explain.methods import METHODS, MethodOptions
from molattn.explain.target import find_target
from molattn.model.model import MolAttn
from molattn.record import MoleculeRecord

__all__ = ["explain", "explain_instance", "make_instances", "read_instances"]

LEVEL = 0.9
"""Default nominal coverage of prediction intervals."""


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
    background: Optional[Sequence[Molecule]] = None,
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
        background: Molecules whose average atom is the baseline of integrated gradients, never
            standardized; None = the bundled solubility data.
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
    chosen = MethodOptions(**options)
    is_one = smiles is None or isinstance(smiles, Molecule)  # None is RDKit's invalid molecule
    molecules: Any = [smiles] if is_one else smiles
    seconds = [partners] if isinstance(partners, Molecule) else partners
    inputs = (molecules, target, seconds, features, background)
    instances = read_instances(model, *inputs, level=interval)
    explanations = [explain_instance(instance, method, chosen) for instance in instances]
    return explanations[0] if is_one else explanations


def read_instances(
    model: MolAttn,
    smiles: Iterable[Molecule],
    target: Optional[str] = None,
    partners: Optional[Iterable[Molecule]] = None,
    features: Optional[ArrayLike] = None,
    background: Optional[Sequence[Molecule]] = None,
    *,
    level: float = LEVEL,
) -> Iterator[Instance]:
    """Featurize and predict molecules to explain; the arguments are those of :func:`explain`."""
    check_list("smiles", smiles)
    check_list("partners", partners)
    smiles, partners = [*smiles], None if partners is None else [*partners]
    baseline = baseline_atom(model.config.featurizer, background)
    reader = model.reader(partners, numbers=True, fingerprint=model.uncertainty is not None)
    records = reader.all(smiles, partners)
    return make_instances(
        model, [*zip(smiles, records, strict=True)], features, baseline, target, level
    )


def make_instances(
    model: MolAttn,
    molecules: Sequence[tuple[Molecule, MoleculeRecord]],
    features: Optional[ArrayLike],
    baseline: NDArray[np.float64],
    target: Optional[str],
    level: float,
) -> Iterator[Instance]:
    """Predict featurized molecules to explain, each given with its record."""
    records = [record for _, record in molecules]
    outputs = model.predict_outputs(records, features=features)
    prints: Any = [record.fingerprint for record in records]
    predicted = model.prediction(outputs, prints, level)
    rows = None if features is None else np.asarray(features, dtype=np.float64)
    for row, (molecule, record) in enumerate(molecules):
        values = predicted.prediction[row]
        chosen = find_target(model, target, values.tolist())
        value = float(values[chosen.outputs][chosen.index])
        low, high = (float(end[row, chosen.task_index]) for end in (predicted.low, predicted.high))
        interval = (low, high) if math.isfinite(high - low) else (None, None)
        numbers = None if rows is None else rows[row]
        yield Instance(model, molecule, record, chosen, baseline, value, interval, numbers)


def explain_instance(instance: Instance, method: str, options: MethodOptions) -> Explanation:
    """Explain one molecule."""
    signed, target, prediction = METHODS[method].signed, instance.target, instance.prediction
    scores = METHODS[method](instance, options)
    residual = None
    if scores.baseline is not None:
        total = float(scores.atoms.sum()) + sum(scores.others.values())
        residual = prediction - scores.baseline - total
    weights, gates, _ = instance.attention
    members, _, heads = weights.shape[:3]
    low, high = instance.interval
    return Explanation(
        smiles=instance.smiles,
        mol=instance.mol if isinstance(instance.molecule, Chem.Mol) else None,
        target=target.name,
        unit=target.unit,
        method=method,
        signed=signed,
        prediction=prediction,
        probability=None if target.task.kind == "regression" else instance.predicted,
        low=low,
        high=high,
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
