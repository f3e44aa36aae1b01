"""A model as PyG's explainers take one."""

from typing import Optional, cast

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from molattn.data.pyg_data import from_smiles
from molattn.explain.baseline import amounts
from molattn.explain.target import find_output
from molattn.model.model import MolAttn
from molattn.model.network import Network

__all__ = ["GraphModel", "graph_of"]


class GraphModel(nn.Module):
    """One output of a model, called as PyG's explainers call: ``model(x, edge_index, ...)``.

    Their masks and gradients reach it as any PyG model: node masks the features, edge masks the
    messages of the attention layers. :func:`molattn.explain.explain` asks for less and tests more;
    this is for what PyG has beyond it.

    Args:
        model: The model; one that reads a second molecule or further numbers has no such form.
        target: As for :func:`molattn.explain.explain`; one of several classes must be named.

    Raises:
        InputError: No such target.
        ValueError: A model that reads more than the molecule.

    Example:
        >>> from torch_geometric.explain import CaptumExplainer, Explainer
        >>> from molattn import MolAttnConfig
        >>> model = MolAttn(MolAttnConfig(tasks=("logS",))).eval()
        >>> explainer = Explainer(
        ...     GraphModel(model),
        ...     CaptumExplainer("IntegratedGradients", n_steps=5),
        ...     explanation_type="model",
        ...     node_mask_type="attributes",
        ...     model_config={"mode": "regression", "task_level": "graph"},
        ... )
        >>> data = graph_of(model, "CCO")
        >>> explainer(data.x, data.edge_index, edge_attr=data.edge_attr).node_mask.size(0)
        3
    """

    def __init__(self, model: MolAttn, target: Optional[str] = None) -> None:
        super().__init__()
        if model.config.has_partner or model.config.num_numbers:
            raise ValueError("model: got one that reads more than a molecule, expected one alone")
        self.model = model
        self.output = find_output(model, target, [0.0] * len(model.config.output_names))

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor,
        batch: Optional[Tensor] = None,
    ) -> Tensor:
        """Predict in the output's unit, ``[num_graphs, 1]``.

        Args:
            x: Amounts of atom codes, as :func:`graph_of` gives them, or codes.
            edge_index: All pairs.
            edge_attr: Amounts of pair codes, or codes.
            batch: Molecule of each atom; None = one molecule.
        """
        parts = {"x": x, "edge_index": edge_index, "edge_attr": edge_attr}
        graphs = Data(**parts) if batch is None else Batch(**parts, batch=batch)
        return self.output.value(self.model(graphs)).unsqueeze(-1)


def graph_of(model: MolAttn, smiles: str) -> Data:
    """Turn a SMILES into ``Data`` of which every feature is an amount that can be masked.

    Args:
        model: Whose codes and self loops.
        smiles: The molecule.

    Returns:
        As :func:`molattn.from_smiles`, with ``x`` ``float32 [n, sum(atom_sizes)]`` and
        ``edge_attr`` ``float32 [E, sum(pair_sizes)]``: 1 at each code, else 0.
    """
    featurizer = model.config.featurizer
    loops = model.config.network.self_loops
    data = from_smiles(smiles, self_loops=loops, featurizer=featurizer)
    net = cast(Network, model.nets[0])
    data.edge_index, data.edge_attr = net.edges(data["edge_index"], data["edge_attr"])
    data.x = torch.from_numpy(amounts(data["x"].numpy(), featurizer.atom_sizes))
    data.edge_attr = torch.from_numpy(amounts(data["edge_attr"].numpy(), featurizer.pair_sizes))
    return data
