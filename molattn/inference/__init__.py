"""Prediction and embedding of tables, row by row.

:func:`predict_table` and :func:`embed_table` are the commands ``molattn predict`` and
``molattn fingerprint`` in Python.
"""

from molattn.inference.predict import embed_table as embed_table
from molattn.inference.predict import predict_table as predict_table
