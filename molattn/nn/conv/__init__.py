"""Attention layers, one in each module, and their base class."""
