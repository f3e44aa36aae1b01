"""What a model's prediction rests on: scores of atoms and bonds, attention, and tests of both."""

from .explanation import Explanation as Explanation
