"""Predict with the ONNX file of ``molattn export --to onnx``, without importing torch.

python scripts/example_onnx.py admet.onnx "CCO" "c1ccccc1O"
"""

import json
import sys
from typing import Any

import onnxruntime

from molattn.chem import OnnxInputs


def main(file: str, *smiles: str) -> None:
    session = onnxruntime.InferenceSession(file)
    metadata = session.get_modelmeta().custom_metadata_map["molattn"]
    inputs = OnnxInputs.from_metadata(metadata)
    predictions: Any = session.run(["predictions"], inputs(smiles))[0]
    for text, row in zip(smiles, predictions, strict=True):
        for name, value in zip(json.loads(metadata)["outputs"], row, strict=True):
            print(f"{text}  {name}  {value:.4g}")
    assert "torch" not in sys.modules


if __name__ == "__main__":
    main(*sys.argv[1:])
