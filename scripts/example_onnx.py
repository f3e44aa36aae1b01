"""Predict with the ONNX file of ``molattn export --to onnx``, without importing torch.

python scripts/example_onnx.py admet.onnx "CCO" "c1ccccc1O"
"""

import json
import sys
from typing import Any

import numpy as np
import onnxruntime

from molattn.chem import OnnxInputs


def main(file: str, *smiles: str) -> None:
    session = onnxruntime.InferenceSession(file)
    metadata = session.get_modelmeta().custom_metadata_map["molattn"]
    names = json.loads(metadata)
    inputs = OnnxInputs.from_metadata(metadata)
    keys = [output.name for output in session.get_outputs()]
    outputs: Any = dict(zip(keys, session.run(keys, inputs(smiles)), strict=True))
    for row, (text, sites) in enumerate(zip(smiles, inputs.sites(smiles), strict=True)):
        if names["outputs"]:
            show(text, names["outputs"], outputs["predictions"][row])
        for level, columns in names["site_outputs"].items():
            values = outputs[f"{level}_predictions"][row]
            for number, place in enumerate(np.atleast_2d(getattr(sites, f"{level}s")).T):
                if place.min() >= 0:  # -1: an atom that the model does not read
                    show(f"{text}  {level} {number}", columns, values[tuple(place)])
    assert "torch" not in sys.modules


def show(text: str, columns: list[str], values: Any) -> None:
    for name, value in zip(columns, values, strict=True):
        print(f"{text}  {name}  {value:.4g}")


if __name__ == "__main__":
    main(*sys.argv[1:])
