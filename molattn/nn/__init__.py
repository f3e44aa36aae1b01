"""Attention layers for any PyG graph; no chemistry needed."""

from . import functional as functional
from .edge_attention import EdgeAttentionConv as EdgeAttentionConv
from .gaan import GaANConv as GaANConv
from .graph_network import GraphNetwork as GraphNetwork
from .mat import MATConv as MATConv
