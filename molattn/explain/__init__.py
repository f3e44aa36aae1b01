"""What a model's prediction rests on: scores of atoms and bonds, attention, and tests of both."""

from molattn.explain.explainer import explain as explain
from molattn.explain.explanation import Explanation as Explanation
from molattn.explain.faithfulness.deletion_insertion import Faithfulness as Faithfulness
from molattn.explain.faithfulness.deletion_insertion import MethodFaithfulness as MethodFaithfulness
from molattn.explain.faithfulness.deletion_insertion import faithfulness as faithfulness
from molattn.explain.faithfulness.synthetic import Planted as Planted
from molattn.explain.faithfulness.synthetic import discovery as discovery
from molattn.explain.faithfulness.synthetic import plant as plant
from molattn.explain.methods.base import MethodOptions as MethodOptions
from molattn.explain.methods.registry import METHODS as METHODS
from molattn.explain.methods.registry import Method as Method
