"""Explain the predictions of a model."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Optional, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rdkit import Chem

from molattn.chem.parse import Molecule, atom_numbers, check_list
from molattn.explain.baseline import baseline_atom
from molattn.explain.explanation import Explanation
from molattn.explain.instance import LEVEL, Instance
from molattn.explain.methods import METHODS, MethodOptions
from molattn.explain.target import find_target
from molattn.model.model import MolAttn

__all__ = ["explain", "explain_instance", "read_instances"]


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
        smiles: A SMILES or an RDKit molecule, or several of them. The scores of an RDKit molecule
            are in the order of its atoms, without explicit hydrogen atoms.
        method: A name in :data:`molattn.explain.METHODS`.
        target: The prediction to explain: a task, or one class of a multiclass task by its column
            of predictions (``phase_probability_solid``); None = the first task. For a multiclass
            task without a class, the most probable class of each molecule is explained.
        partners: The second molecules, if the model takes pairs of molecules. Their atoms
            are not scored.
        features: Table features ``[n, len(config.features)]``, if the model uses any.
        background: Molecules, such as the training set, whose average atom is the baseline of
            integrated gradients and of ``masking="blank"``, and which are never standardized; None
            = the bundled solubility data.
        interval: Nominal coverage of the prediction interval of a regression, if the model is
            calibrated.
        options: Options of the method, see :class:`molattn.explain.MethodOptions`.

    Returns:
        An explanation, or a list of explanations in the order of the molecules.

    Raises:
        InputError: An unknown method, target or option, or an invalid value.
        SmilesError: An invalid molecule.

    Example:
        >>> from molattn import MolAttn, MolAttnConfig
        >>> explanation = explain(MolAttn(MolAttnConfig(tasks=("logS",))), "CCO", "attention")
        >>> explanation.atom_scores.shape, explanation.attention.shape
        ((3,), (4, 8, 3, 3))
    """
    METHODS[method]  # refuses an unknown name before any molecule is read
    chosen = MethodOptions.named(options)
    is_one = smiles is None or isinstance(smiles, Molecule)  # None is RDKit's invalid molecule
    molecules: Any = [smiles] if is_one else smiles
    seconds = [partners] if isinstance(partners, Molecule) else partners
    instances = read_instances(model, molecules, target, seconds, features, background)
    found = [explain_instance(instance, method, chosen, level=interval) for instance in instances]
    return found[0] if is_one else found


def read_instances(
    model: MolAttn,
    smiles: Iterable[Molecule],
    target: Optional[str] = None,
    partners: Optional[Iterable[Molecule]] = None,
    features: Optional[ArrayLike] = None,
    background: Optional[Sequence[Molecule]] = None,
) -> Iterator[Instance]:
    """Featurize and predict molecules to explain; the arguments are those of :func:`explain`."""
    check_list("smiles", smiles)
    check_list("partners", partners)
    smiles, partners = [*smiles], None if partners is None else [*partners]
    baseline = baseline_atom(model.config.featurizer, background)
    rows = None if features is None else np.asarray(features, dtype=np.float64)
    seconds = [None] * len(smiles) if partners is None else partners
    predicted = model.predict(smiles, partners=partners, features=features)
    for place, (text, partner) in enumerate(zip(smiles, seconds, strict=True)):
        yield Instance(
            model,
            text,
            model.featurize(text, partner),
            find_target(model, target, predicted[place].tolist()),
            baseline,
            predicted[place],
            None if rows is None else rows[place],
        )


def explain_instance(
    instance: Instance,
    method: str,
    options: MethodOptions,
    *,
    level: float = LEVEL,
) -> Explanation:
    """Explain one molecule; ``level`` is the nominal coverage of its prediction interval."""
    chosen = METHODS[method]
    scores = chosen(instance, options)
    attention, target, prediction = instance.attention, instance.target, instance.prediction
    residual = None
    if scores.baseline is not None:
        total = float(scores.atoms.sum()) + sum(scores.others.values())
        residual = prediction - scores.baseline - total
    members, _, heads = attention.weights.shape[:3]
    low, high = instance.interval(level)
    return Explanation(
        smiles=instance.smiles,
        mol=instance.mol if isinstance(instance.molecule, Chem.Mol) else None,
        target=target.name,
        unit=target.unit,
        method=method,
        signed=chosen.signed,
        prediction=prediction,
        probability=instance.probability,
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
        tolerance=options.tolerance * target.spread if chosen.signed else None,
        attention=_join_heads(attention.weights),
        gates=_join_heads(attention.gates) if attention.gated else None,
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
