"""Attention layers for molecules on PyTorch Geometric."""
