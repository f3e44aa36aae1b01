"""Equality and CPU time of exported models and molattn, on 1,000 molecules, one thread."""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import torch

from molattn import MolAttn, SmilesError
from molattn.chem import OnnxInputs
from molattn.data.table import bundled_dataset
from molattn.model.onnx_file import to_onnx

SIZE = 32
SPECIAL = ["[He]", "C", "[Na+].[Cl-]", "C" * 100]


def row(name: str, smiles: list[str], with_gaussian_process: bool) -> str:
    """Measure a model: a row of the table."""
    model = MolAttn.from_pretrained(name)
    start = time.process_time()
    content, _ = to_onnx(model, with_gaussian_process=with_gaussian_process)
    export = time.process_time() - start
    if model.gaussian_process is not None and not with_gaussian_process:  # as in the file
        model.gaussian_process = model.uncertainty = None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session: Any = onnxruntime.InferenceSession(content, options)
    inputs = OnnxInputs.from_metadata(session.get_modelmeta().custom_metadata_map["molattn"])
    read = zip(smiles, inputs.reader(smiles), strict=True)
    known = [(one, record) for one, record in read if not isinstance(record, SmilesError)]
    texts, records = [one for one, _ in known], [record for _, record in known]
    batches = [inputs(texts[i : i + SIZE]) for i in range(0, len(texts), SIZE)]
    found: Any = None
    expected: Any = None
    times = []
    for _ in range(3):  # in turn, the best of three
        start = time.process_time()
        found = np.concatenate([session.run(["predictions"], batch)[0] for batch in batches])
        middle = time.process_time()
        expected = model.predictor.values(model.predictor.predict_outputs(records, SIZE))
        times.append([middle - start, time.process_time() - middle])
    difference = (np.abs(found - expected) / expected.std(axis=0)).max()
    ms = " | ".join(f"{1000 * one / len(texts):.2f}" for one in np.min(times, axis=0))
    return f"| {name} | {difference:.0e} | {len(content) / 1e6:.1f} | {export:.0f} | {ms} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", help="packaged models or folders")
    parser.add_argument("--file", type=Path, default=bundled_dataset(), help="CSV with smiles")
    parser.add_argument("--molecules", type=int, default=1000, help="(default: %(default)s)")
    parser.add_argument("--with-gaussian-process", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    molecules = pd.read_csv(given.file)["smiles"].tolist()[: given.molecules - len(SPECIAL)]
    print("| model | largest difference | MB | export, s | onnxruntime, ms | molattn, ms |")
    for model_name in given.models:
        texts = sorted([*molecules, *SPECIAL], key=len)
        print(row(model_name, texts, given.with_gaussian_process), flush=True)
