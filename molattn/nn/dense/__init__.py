"""Attention over all pairs of complete graphs, edge updates and linear maps."""
