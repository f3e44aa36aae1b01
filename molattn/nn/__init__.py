"""Attention layers for any PyG graph, and the other parts of a network; no chemistry needed."""

from molattn.nn import functional as functional
from molattn.nn.attention_conv import AttentionConv as AttentionConv
from molattn.nn.attention_heads import COMBINES as COMBINES
from molattn.nn.attention_heads import HeadCombine as HeadCombine
from molattn.nn.attention_heads import HeadGate as HeadGate
from molattn.nn.edge_attention import EdgeAttentionConv as EdgeAttentionConv
from molattn.nn.embedding import CodeEmbedding as CodeEmbedding
from molattn.nn.embedding import FixedPairEmbedding as FixedPairEmbedding
from molattn.nn.embedding import PairEmbedding as PairEmbedding
from molattn.nn.encoder import AttentionBlock as AttentionBlock
from molattn.nn.encoder import CrossAttention as CrossAttention
from molattn.nn.encoder import Encoder as Encoder
from molattn.nn.functional import SCORES as SCORES
from molattn.nn.functional import Score as Score
from molattn.nn.gaan import GaANConv as GaANConv
from molattn.nn.graph_network import GraphNetwork as GraphNetwork
from molattn.nn.mat import MATConv as MATConv
from molattn.nn.prediction_head import PREDICTION_HEADS as PREDICTION_HEADS
from molattn.nn.prediction_head import FourierHead as FourierHead
from molattn.nn.prediction_head import MLPFourierHead as MLPFourierHead
from molattn.nn.prediction_head import MLPHead as MLPHead
from molattn.nn.readout import READOUTS as READOUTS
from molattn.nn.readout import Readout as Readout
from molattn.nn.registry import LAYERS as LAYERS
from molattn.nn.registry import Layer as Layer
from molattn.nn.registry import check_network as check_network
