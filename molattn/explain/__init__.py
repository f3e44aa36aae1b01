"""Explanations of predictions: atom and bond scores, attention weights, and tests of methods."""

from molattn.explain.explainer import Explanation as Explanation
from molattn.explain.explainer import explain as explain
from molattn.explain.faithfulness import Faithfulness as Faithfulness
from molattn.explain.faithfulness import MethodFaithfulness as MethodFaithfulness
from molattn.explain.faithfulness import measure_faithfulness as measure_faithfulness
from molattn.explain.folder import explain_table as explain_table
from molattn.explain.instance import Instance as Instance
from molattn.explain.methods import METHODS as METHODS
from molattn.explain.methods import Method as Method
from molattn.explain.methods import MethodOptions as MethodOptions
from molattn.explain.methods import Scores as Scores
from molattn.explain.reach import AttentionByDistance as AttentionByDistance
from molattn.explain.reach import attention_by_distance as attention_by_distance
from molattn.explain.sites import draw_sites as draw_sites
