"""Attention layers for any PyG graph, and the other parts of a network; no chemistry needed."""

from molattn.nn import functional as functional
from molattn.nn.attention_bias import AttentionBias, DistanceBias, DistanceSlopes, PathBias
from molattn.nn.attention_heads import COMBINES, HeadCombine, HeadGate
from molattn.nn.conv.attention_conv import AttentionConv
from molattn.nn.conv.edge_attention import EdgeAttentionConv
from molattn.nn.conv.egt import EGTConv
from molattn.nn.conv.gaan import GaANConv
from molattn.nn.conv.gps import PairGPSConv
from molattn.nn.conv.graph_network import GraphNetwork
from molattn.nn.conv.grit import GRITConv
from molattn.nn.conv.mat import MATConv
from molattn.nn.dense.linear import Linear
from molattn.nn.embedding import CodeEmbedding, FixedPairEmbedding, PairEmbedding
from molattn.nn.encoder import AttentionBlock, Encoder
from molattn.nn.functional import SCORES, Score
from molattn.nn.graph_inputs import edge_features, map_edges
from molattn.nn.graph_transformer import GraphTransformerBlock
from molattn.nn.pairs.edge_set import PMA, EdgeSetAttention
from molattn.nn.pairs.triplets import EdgeTransformerConv, TripletAggregate, TripletAttention
from molattn.nn.prediction_head import PREDICTION_HEADS, FourierHead, MLPFourierHead, MLPHead
from molattn.nn.readout import READOUTS, Readout
from molattn.nn.registry import LAYERS, Layer, check_network

__all__ = [
    "AttentionBias",
    "AttentionBlock",
    "AttentionConv",
    "COMBINES",
    "CodeEmbedding",
    "DistanceBias",
    "DistanceSlopes",
    "EGTConv",
    "EdgeAttentionConv",
    "EdgeSetAttention",
    "EdgeTransformerConv",
    "Encoder",
    "FixedPairEmbedding",
    "FourierHead",
    "GRITConv",
    "GaANConv",
    "GraphNetwork",
    "GraphTransformerBlock",
    "HeadCombine",
    "HeadGate",
    "LAYERS",
    "Layer",
    "Linear",
    "MATConv",
    "MLPFourierHead",
    "MLPHead",
    "PMA",
    "PREDICTION_HEADS",
    "PairEmbedding",
    "PairGPSConv",
    "PathBias",
    "READOUTS",
    "Readout",
    "SCORES",
    "Score",
    "TripletAggregate",
    "TripletAttention",
    "check_network",
    "edge_features",
    "map_edges",
]
