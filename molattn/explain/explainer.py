"""Molecules and a model to explanations."""

from collections.abc import Iterator, Sequence
from typing import Any, Optional, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from molattn.chem.reader import MoleculeReader
from molattn.explain.baseline import average_atom, bundled_average
from molattn.explain.explanation import Explanation
from molattn.explain.instance import LEVEL, Instance
from molattn.explain.methods.base import MethodOptions
from molattn.explain.methods.registry import find_method
from molattn.explain.target import find_output
from molattn.model.model import MolAttn

__all__ = ["explain", "explain_instance", "find_average", "read_instances"]


@overload
def explain(model: MolAttn, smiles: str, method: str = ..., **options: Any) -> Explanation: ...


@overload
def explain(
    model: MolAttn, smiles: Sequence[str], method: str = ..., **options: Any
) -> list[Explanation]: ...


def explain(
    model: MolAttn,
    smiles: str | Sequence[str],
    method: str = "integrated_gradients",
    *,
    target: Optional[str] = None,
    partners: str | Sequence[str] | None = None,
    features: Optional[ArrayLike] = None,
    background: Optional[Sequence[str]] = None,
    interval: float = LEVEL,
    **options: Any,
) -> Explanation | list[Explanation]:
    """Explain what a model predicts of molecules.

    Args:
        model: The model.
        smiles: A molecule, or a list of them.
        method: A name of :data:`molattn.explain.METHODS`.
        target: What is explained: the name of a task, or of one of several classes its column in a
            table of predictions (``phase_probability_solid``); None = the first task. Of several
            classes of which none is named, it is the likeliest.
        partners: The second molecule of each, where the model reads one; it is not scored.
        features: Further numbers ``[n, len(config.features)]``, if the config names any.
        background: Molecules, such as the training set, whose average atom integrated gradients
            begin with and ``masking="blank"`` leaves; None = those of the bundled solubility set.
        interval: Level of the interval of a regression, where the model is calibrated.
        options: Of the method: see :class:`molattn.explain.MethodOptions`.

    Returns:
        An explanation, or a list of them, in the order of the molecules.

    Raises:
        InputError: A method, target or option that does not exist.
        SmilesError: A text that is not a molecule; says which and why.

    Example:
        >>> from molattn import MolAttn, MolAttnConfig
        >>> explanation = explain(MolAttn(MolAttnConfig(tasks=("logS",))), "CCO", "attention")
        >>> explanation.atom_scores.shape, explanation.attention.shape
        ((3,), (4, 8, 3, 3))
    """
    find_method(method)
    chosen = MethodOptions(**options)
    average = find_average(model, background)
    one = isinstance(smiles, str)
    texts, seconds = ([given] if isinstance(given, str) else given for given in (smiles, partners))
    instances = read_instances(
        model,
        texts or [],
        target=target,
        partners=seconds,
        features=features,
        average=average,
    )
    found = [explain_instance(instance, method, chosen, level=interval) for instance in instances]
    return found[0] if one else found


def find_average(model: MolAttn, background: Optional[Sequence[str]]) -> NDArray[np.float64]:
    """Return the average atom of molecules, None = those of the bundled set."""
    featurizer = model.config.featurizer
    if background is None:
        return bundled_average(featurizer)
    return average_atom(MoleculeReader(featurizer).all(background), featurizer)


def read_instances(
    model: MolAttn,
    smiles: Sequence[str],
    *,
    target: Optional[str],
    average: NDArray[np.float64],
    partners: Optional[Sequence[str]] = None,
    features: Optional[ArrayLike] = None,
) -> Iterator[Instance]:
    """Read molecules, to be explained or tested on; see :func:`explain`."""
    numbers = None if features is None else np.asarray(features, dtype=np.float64)
    seconds = [None] * len(smiles) if partners is None else partners
    predicted = model.predict(smiles, partners=partners, features=features)
    for place, (text, partner) in enumerate(zip(smiles, seconds, strict=True)):
        yield Instance(
            model,
            text,
            model.featurize(text, partner),
            find_output(model, target, predicted[place].tolist()),
            average,
            predicted[place],
            None if numbers is None else numbers[place],
        )


def explain_instance(
    instance: Instance,
    method: str,
    options: MethodOptions,
    *,
    level: float = LEVEL,
) -> Explanation:
    """Explain one molecule.

    Args:
        instance: The molecule.
        method: A name of :data:`molattn.explain.METHODS`.
        options: Of the method.
        level: Probability with which the truth lies in the prediction's interval.
    """
    chosen = find_method(method)
    scores = chosen.compute(instance, options)
    attention, output, prediction = instance.attention, instance.output, instance.prediction
    residual = None
    if scores.baseline is not None:
        residual = prediction - scores.baseline - float(scores.atoms.sum())
    members, _, heads = attention.weights.shape[:3]
    low, high = instance.interval(level)
    return Explanation(
        smiles=instance.smiles,
        target=output.name,
        unit=output.unit,
        method=method,
        signed=chosen.signed,
        prediction=prediction,
        probability=instance.probability,
        low=low,
        high=high,
        baseline=scores.baseline,
        symbols=tuple(atom.GetSymbol() for atom in instance.mol.GetAtoms()),
        bonds=instance.bonds,
        atom_scores=scores.atoms,
        bond_scores=scores.bonds,
        residual=residual,
        tolerance=options.tolerance * output.scale if chosen.signed else None,
        attention=_along_heads(attention.weights),
        gates=_along_heads(attention.gates) if attention.gated else None,
        head_names=tuple(
            f"{member}.{head}" if members > 1 else str(head)
            for member in range(1, members + 1)
            for head in range(1, heads + 1)
        ),
    )


def _along_heads(members: NDArray[np.float64]) -> NDArray[np.float32]:
    """Put members' heads after one another: ``[M, L, H, ...]`` to ``[L, M H, ...]``."""
    layers = np.moveaxis(members, 0, 1)
    count, members, heads, *atoms = layers.shape  # all 0 where the encoder has no such layers
    return layers.reshape(count, members * heads, *atoms).astype(np.float32)
