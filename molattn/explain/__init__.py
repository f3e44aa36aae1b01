"""What a model's prediction rests on: scores of atoms and bonds, attention, and tests of both."""

from molattn.explain.explainer import explain as explain
from molattn.explain.explanation import Explanation as Explanation
from molattn.explain.faithfulness.deletion_insertion import Fidelity as Fidelity
from molattn.explain.faithfulness.deletion_insertion import MethodFidelity as MethodFidelity
from molattn.explain.faithfulness.deletion_insertion import fidelity as fidelity
from molattn.explain.faithfulness.synthetic import Planted as Planted
from molattn.explain.faithfulness.synthetic import discovery as discovery
from molattn.explain.faithfulness.synthetic import plant as plant
from molattn.explain.methods.base import Options as Options
from molattn.explain.methods.registry import METHODS as METHODS
from molattn.explain.methods.registry import Method as Method
