"""Prediction and embedding of tables, row by row.

:func:`predict_table` and :func:`fingerprint_table` are the commands ``molattn predict`` and
``molattn fingerprint`` in Python.
"""

from molattn.inference.predict import fingerprint_table as fingerprint_table
from molattn.inference.predict import predict_table as predict_table
