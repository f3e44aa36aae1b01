"""The parts of ``benchmark_accuracy.py``: cases, models, runs, their results and tables of them."""
