"""Attention layers for any PyG graph; no chemistry needed."""

from . import functional as functional
from .edge_attention import EdgeAttentionConv as EdgeAttentionConv
