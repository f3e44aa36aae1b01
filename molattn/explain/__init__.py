"""What a model's prediction rests on: scores of atoms and bonds, attention, and tests of both."""

from .explainer import explain as explain
from .explanation import Explanation as Explanation
from .fidelity import Fidelity as Fidelity
from .fidelity import MethodFidelity as MethodFidelity
from .fidelity import fidelity as fidelity
from .methods import METHODS as METHODS
from .methods import Method as Method
from .options import Options as Options
from .planted import Planted as Planted
from .planted import discovery as discovery
from .planted import plant as plant
