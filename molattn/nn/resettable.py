"""Modules whose parameters can be drawn again."""

from torch import nn
from torch_geometric.nn.inits import reset


class Resettable(nn.Module):
    """Base of modules whose parameters all belong to child modules."""

    def reset_parameters(self) -> None:
        """Reset all parameters."""
        for module in self.children():
            reset(module)
