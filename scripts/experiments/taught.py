"""Add predicted ADMET values to the table that a base learns from.

    python -m scripts.experiments.taught FOLDER TEACHERS.parquet --output TAUGHT

FOLDER has the training parts of TDC's ADMET group, as for scripts/models/train_admet.py; TEACHERS
is what scripts/models/embed_teachers.py writes. One network learns the tasks other than the six
that the base is judged on, and predicts them for the molecules of TEACHERS: numbers, of clearances,
half-life and volume of distribution the logarithm, and logits of classes. Each column is repeated
ten times, so that they weigh as much as an embedding of 160 numbers.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

import molattn
from molattn import MolAttn
from molattn.utils.console import row_progress
from scripts.models.train_admet import read_tasks

JUDGED = {
    "bioavailability_ma",
    "caco2_wang",
    "clearance_microsome_az",
    "herg",
    "lipophilicity_astrazeneca",
    "ppbr_az",
}
LOGARITHM = ("vdss_lombardo", "half_life_obach", "clearance_hepatocyte_az")
OPTIONS: dict[str, Any] = {
    "epochs": 10,
    "batch_size": 64,
    "learning_rate": 0.0014,
    "precision": "bf16",
    "inducing_points": 4500,
    "descriptors": "none",
    "init_from": "base-minimol",
    "baselines": False,
    "device": "cpu",
    "bootstrap": 0,
}
REPEATS, BLOCK = 10, 512


def teacher(folder: Path) -> MolAttn:
    """Train on the tasks that are not judged; they weigh as the square root of their labels."""
    names = [path.name.split(".")[0] for path in sorted(folder.glob("*.csv*"))]
    tasks = [name for name in names if name not in JUDGED]
    table = read_tasks(folder, dict.fromkeys(tasks, "written"))
    for name in LOGARITHM:
        table[name] = np.log10(table[name].clip(lower=1e-3))
    parts = np.random.default_rng(0).choice(
        ["train", "val", "test"], len(table), p=[0.94, 0.03, 0.03]
    )
    counts = table[tasks].count()
    is_class = [set(table[name].dropna()) <= {0.0, 1.0} for name in tasks]
    found = molattn.train(
        table.assign(split=parts),
        tasks,
        split_column="split",
        task=tuple("binary" if one else "regression" for one in is_class),
        task_weights=tuple(np.sqrt(counts.mean() / counts).round(3).tolist()),
        **OPTIONS,
    )
    return found.run.model


def predicted(model: MolAttn, smiles: list[str]) -> dict[str, np.ndarray]:
    """Return the columns to learn: all predictions, of classes as logits, repeated."""
    blocks = []
    with row_progress(Console(stderr=True), "predicting", len(smiles)) as advance:
        for start in range(0, len(smiles), BLOCK):
            blocks.append(model.predict(smiles[start : start + BLOCK], batch_size=BLOCK))
            advance(len(blocks[-1]), 0)
    columns = {}
    for task, values in zip(model.config.tasks, np.concatenate(blocks).T, strict=True):
        if task.kind == "binary":
            values = values.clip(0.005, 0.995)
            values = np.log(values / (1.0 - values))
        values = values.clip(*np.quantile(values, [0.001, 0.999])).astype(np.float32)
        columns |= {f"admet_{task.name}_{number}": values for number in range(REPEATS)}
    return columns


def main() -> None:
    """Train the teacher, unless its folder is there, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("teachers", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--teacher", type=Path, default=Path("runs/teacher"), help="its folder")
    given = parser.parse_args()
    if not given.teacher.exists():
        teacher(given.folder).save_pretrained(given.teacher)
    table = pq.read_table(given.teachers)
    columns = predicted(MolAttn.from_pretrained(given.teacher), table["smiles"].to_pylist())
    pq.write_table(
        pa.table({**dict(zip(table.column_names, table.columns, strict=True)), **columns}),
        given.output,
        compression="zstd",
    )


if __name__ == "__main__":
    main()
