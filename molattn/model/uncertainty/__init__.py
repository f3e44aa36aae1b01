"""Uncertainty of predictions: conformal intervals, calibrated probabilities, similarity."""
