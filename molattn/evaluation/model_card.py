"""The README.md of a trained model: what it predicts, how it was trained, and what it is for."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from molattn.config import TrainConfig
from molattn.model.artefact import MODEL_FILES
from molattn.model.model import MolAttn

_FACTS = """
Data: {table} (SHA-256 {digest}), {used:,} rows used, {skipped:,} skipped; rows for
training {rows_train:,}, validation {rows_validation:,}, test {rows_test:,}; split: {split}.
Trained on {date} with molattn {version}, by:

    {command}

## Domain and intended use

The model is for molecules like those that it was trained on: `molattn predict` returns the
similarity to the nearest of them, a confidence and an expected error. {baseline}
It ranks and filters candidates for experiments; it does not replace a measurement, and is not for
decisions on the treatment of patients.

## License

License: not stated. It depends on the license of the data.

## Files

{files}
"""


def model_card(
    model: MolAttn,
    config: TrainConfig,
    metrics: Mapping[str, Any],
    scores: Mapping[str, str],
    folder: Path,
    split: str,
    conclusion: str,
) -> str:
    """Return the card of a model that was saved in a folder.

    ``metrics`` has the numbers of rows and the versions of the training, as ``metrics.json`` of a
    run; ``scores`` has those of each task by name.
    """
    files = [f"- `{name}`" for name in MODEL_FILES if (folder / name).exists()]
    facts = _FACTS.format(
        **{name: metrics.get(name) or 0 for name in ("rows_train", "rows_validation", "rows_test")},
        table=Path(config.file).name or "a DataFrame",
        digest=metrics["data_sha256"],
        used=metrics["rows_used"],
        skipped=metrics["rows_skipped"],
        split=split,
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        version=metrics["versions"]["molattn"],
        command=config.command_line("train"),
        baseline=conclusion,
        files="\n".join(files),
    )
    return model.card(scores) + facts
