"""Write what a saved model predicts: `python record.py MODEL_FOLDER OUTPUT_FOLDER`.

Only what the documentation promises is used, so that the script runs with any version.
"""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from molattn import MolAttn
from molattn.explain import explain

MOLECULES = Path(__file__).with_name("molecules.csv")
LEVEL = 0.9


def read_molecules(path: Path = MOLECULES) -> list[dict[str, str]]:
    """Read the table; its last row is no molecule."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))[:-1]


def record(folder: Path) -> dict[str, Any]:
    """Return predictions, embeddings, uncertainty and an explanation, as JSON types."""
    model = MolAttn.from_pretrained(folder)
    config, rows = model.config, read_molecules()
    smiles = [row["smiles"] for row in rows]
    partners = [row["solvent"] for row in rows] if config.has_partner else None
    numbers = [[float(row[name]) for name in config.features] for row in rows]
    features = np.array(numbers) if config.features else None
    inputs: dict[str, Any] = {"partners": partners, "features": features}
    arrays = {
        "prediction": model.predict(smiles, **inputs),
        "members": model.predict(smiles, members=True, **inputs),
        "embedding": model.embed(smiles, partners=partners),
        "atoms": model.embed(smiles[:2], partners=partners and partners[:2], atoms=True),
    }
    if model.uncertainty is not None:
        low, high = model.predict_interval(smiles, LEVEL, **inputs)
        arrays |= {"low": low, "high": high, "similarity": model.training_similarity(smiles)}
    explained = explain(
        model,
        smiles[:1],
        "attention",
        partners=partners and partners[:1],
        features=None if features is None else features[:1],
    )
    arrays["attention"] = explained[0].atom_scores
    return {
        "outputs": list(config.output_names),
        "tasks": [task.to_dict() for task in config.tasks],
        **{name: np.asarray(values, dtype=np.float64).tolist() for name, values in arrays.items()},
    }


if __name__ == "__main__":
    source, output = map(Path, sys.argv[1:])
    output.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record(source))
    (output / "expected.json").write_text(text + "\n", encoding="utf-8")
