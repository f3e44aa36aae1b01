"""Metrics, and the scores of the predictions and intervals of a run."""
