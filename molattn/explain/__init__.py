"""What a model's prediction rests on: scores of atoms and bonds, attention, and tests of both."""

from .explainer import explain as explain
from .explanation import Explanation as Explanation
from .methods import METHODS as METHODS
from .methods import Method as Method
from .options import Options as Options
