"""Comparison of finished runs, and the list of the runs in a folder."""
