"""Layers whose tokens are pairs of nodes or edges."""
