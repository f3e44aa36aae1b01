"""Physicochemical properties and structural alerts of a molecule, by RDKit."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from rdkit import Chem
from rdkit.Chem import QED, Descriptors, rdMolDescriptors
from rdkit.Chem.FilterCatalog import FilterCatalog, FilterCatalogParams
from typing_extensions import TypedDict

from molattn.chem.limits import Standardize, read_molecule, standardized_smiles
from molattn.chem.parse import quiet
from molattn.config import MoleculeLimits

_LIPINSKI = "limit: Lipinski et al., Adv. Drug Deliv. Rev. 1997, 23, 3"
_VEBER = "limit: Veber et al., J. Med. Chem. 2002, 45, 2615"
_CRIPPEN = "Wildman and Crippen, J. Chem. Inf. Comput. Sci. 1999, 39, 868"
_ERTL = "Ertl et al., J. Med. Chem. 2000, 43, 3714"


class _Property(NamedTuple):
    title: str
    unit: str
    most: float | None
    source: str
    calculate: Callable[[Chem.Mol], float]


def _clogp(mol: Chem.Mol) -> float:
    return rdMolDescriptors.CalcCrippenDescriptors(mol)[0]


def _violations(mol: Chem.Mol) -> float:
    rules = (PROPERTIES[name] for name in ("mw", "clogp", "hbd", "hba"))
    return sum(rule.calculate(mol) > rule.most for rule in rules if rule.most is not None)


_calculate: Any = rdMolDescriptors
_weight = dict(Descriptors.descList)["MolWt"]
PROPERTIES: dict[str, _Property] = {
    "mw": _Property("Molecular weight", "g/mol", 500, _LIPINSKI, _weight),
    "clogp": _Property("cLogP", "", 5, f"{_CRIPPEN}; {_LIPINSKI}", _clogp),
    "tpsa": _Property("TPSA", "\N{ANGSTROM SIGN}²", 140, f"{_ERTL}; {_VEBER}", _calculate.CalcTPSA),
    "hbd": _Property(
        "H-bond donors", "", 5, f"hydrogens on N and O; {_LIPINSKI}", _calculate.CalcNumLipinskiHBD
    ),
    "hba": _Property(
        "H-bond acceptors", "", 10, f"N and O; {_LIPINSKI}", _calculate.CalcNumLipinskiHBA
    ),
    "rotatable_bonds": _Property(
        "Rotatable bonds", "", 10, _VEBER, _calculate.CalcNumRotatableBonds
    ),
    "qed": _Property("QED", "", None, "Bickerton et al., Nat. Chem. 2012, 4, 90", QED.qed),
    "lipinski": _Property(
        "Lipinski violations", "of 4", 1, "rule of five: at most one violation", _violations
    ),
}
"""Properties by name: title, unit, upper limit in use, source, function of a molecule."""

ALERTS = {
    "PAINS": "Baell and Holloway, J. Med. Chem. 2010, 53, 2719",
    "BRENK": "Brenk et al., ChemMedChem 2008, 3, 435",
}
"""RDKit's catalogs of structural alerts, each with its source."""


class PhyschemValue(TypedDict):
    """A property: ``most`` is the upper limit in use, None = none."""

    name: str
    title: str
    unit: str
    value: float
    most: float | None
    source: str


class Alert(TypedDict):
    """A structural alert with the atoms that it matches, from 0."""

    catalog: str
    name: str
    atoms: list[int]


class Physchem(TypedDict):
    """Properties and alerts of the molecule that ``smiles`` is, whose atoms are counted."""

    smiles: str
    properties: list[PhyschemValue]
    alerts: list[Alert]


def physchem(
    smiles: str, limits: MoleculeLimits | None = None, standardize: Standardize = False
) -> Physchem:
    """Return the physicochemical properties and the structural alerts of a molecule.

    Molecular weight in g/mol, topological polar surface area in Å² (N and O), counts, and without
    unit Crippen's logP and QED (0 to 1, of which 1 is most like oral drugs). The sources of each
    are in :data:`PROPERTIES` and :data:`ALERTS`. Limits are by default those of the commands; with
    ``standardize`` the values are of the standard form of the molecule, or of its ``"parent"``.

    Raises:
        SmilesError: It is not a molecule, or beyond a limit.

    Example:
        >>> found = physchem("CC(=O)Oc1ccccc1C(=O)O")
        >>> {one["name"]: round(one["value"], 2) for one in found["properties"]}["tpsa"]
        63.6
        >>> [alert["name"] for alert in found["alerts"]]
        ['phenol_ester']
    """
    limits = limits or MoleculeLimits()
    mol, values = read_molecule(smiles, limits, _calculated, standardize=standardize)
    properties, alerts = values
    return {
        "smiles": standardized_smiles(mol) or smiles,
        "properties": properties,
        "alerts": alerts,
    }


def _calculated(mol: Chem.Mol) -> tuple[list[PhyschemValue], list[Alert]]:
    with quiet:
        properties: list[PhyschemValue] = [
            {
                "name": name,
                "title": quantity.title,
                "unit": quantity.unit,
                "value": float(quantity.calculate(mol)),
                "most": quantity.most,
                "source": quantity.source,
            }
            for name, quantity in PROPERTIES.items()
        ]
        return properties, [alert for name in ALERTS for alert in _alerts(mol, name)]


def _alerts(mol: Chem.Mol, name: str) -> list[Alert]:
    alerts: list[Alert] = []
    for pattern in _catalog(name).GetMatches(mol):
        pairs = (pair for match in pattern.GetFilterMatches(mol) for pair in match.atomPairs)
        atoms = sorted({atom for _, atom in pairs})
        alerts.append({"catalog": name, "name": pattern.GetDescription(), "atoms": atoms})
    return alerts


@cache
def _catalog(name: str) -> FilterCatalog:
    return FilterCatalog(FilterCatalogParams(FilterCatalogParams.FilterCatalogs.names[name]))
