"""Attention layers for any PyG graph; no chemistry needed."""

from molattn.nn import functional as functional
from molattn.nn.edge_attention import EdgeAttentionConv as EdgeAttentionConv
from molattn.nn.gaan import GaANConv as GaANConv
from molattn.nn.graph_network import GraphNetwork as GraphNetwork
from molattn.nn.mat import MATConv as MATConv
