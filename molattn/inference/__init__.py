"""A table through a saved model, row by row."""
