"""Modules whose parameters can be drawn again."""

from torch import nn
from torch_geometric.nn.inits import reset


class Resettable(nn.Module):
    """Base of the modules that have no parameters but those of their parts."""

    def reset_parameters(self) -> None:
        """Reset all parameters."""
        for module in self.children():
            reset(module)
