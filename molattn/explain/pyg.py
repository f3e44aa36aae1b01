"""An adapter that lets PyG's explainers run on the networks of a model."""

from typing import Optional

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from molattn.data.pyg_data import from_smiles
from molattn.explain.instance import one_hot
from molattn.explain.target import find_target
from molattn.model.model import MolAttn


class GraphModel(nn.Module):
    """One target of the networks, with the signature of PyG's explainers: ``model(x, edge_index)``.

    It explains the networks alone: a Gaussian process, as ``admet`` and models trained by default
    have, takes no part. Use :func:`molattn.explain.explain` to explain whole predictions; this
    class is for the other algorithms of :class:`torch_geometric.explain.Explainer`. Node masks
    apply to the features and edge masks to the messages of the attention layers, if all blocks read
    all pairs (``graphs=("pairs",)``). Descriptors and Morgan counts are not masked.

    Args:
        model: The model.
        target: As for :func:`molattn.explain.explain`; of a multiclass task a class must be named.

    Raises:
        InputError: No such target.
        ValueError: A model that takes a second molecule or features of a table, or whose Gaussian
            process predicts alone.

    Example:
        >>> from torch_geometric.explain import CaptumExplainer, Explainer
        >>> model = MolAttn.from_pretrained("admet")
        >>> explainer = Explainer(
        ...     GraphModel(model, "herg"),
        ...     CaptumExplainer("IntegratedGradients", n_steps=5),
        ...     explanation_type="model",
        ...     node_mask_type="attributes",
        ...     model_config={"mode": "regression", "task_level": "graph"},
        ... )
        >>> data = one_hot_data(model, "CCO")
        >>> features = {"edge_attr": data.edge_attr, "numbers": data.get("numbers")}
        >>> explainer(data.x, data.edge_index, **features).node_mask.size(0)
        3
    """

    def __init__(self, model: MolAttn, target: Optional[str] = None) -> None:
        super().__init__()
        if model.config.has_partner or model.config.features or model.predictor.has_untrained_head:
            raise ValueError(
                "model: got one that takes a second molecule or features of a table, or whose "
                "Gaussian process predicts alone, expected trained networks that read one molecule"
            )
        self.model = model
        self.target = find_target(model, target)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor,
        numbers: Optional[Tensor] = None,
        batch: Optional[Tensor] = None,
    ) -> Tensor:
        """Predict the target in its unit, ``[num_graphs, 1]``; see :func:`one_hot_data`."""
        tensors = {"x": x, "edge_index": edge_index, "edge_attr": edge_attr, "numbers": numbers}
        graphs = Data(**tensors) if batch is None else Batch(**tensors, batch=batch)
        return self.target.value(self.model(graphs)).unsqueeze(-1)


def one_hot_data(model: MolAttn, smiles: str) -> Data:
    """Convert a SMILES to ``Data`` with one-hot features, which explainers can mask.

    As :func:`molattn.from_smiles`, with the pairs that the model reads and one-hot ``x`` ``float32
    [n, sum(atom_sizes)]`` and ``edge_attr`` ``float32 [E, sum(pair_sizes)]``; and, where the model
    reads some, descriptors and Morgan counts as ``numbers`` ``[1, F]``.

    Raises:
        SmilesError: The text is not a molecule.
        ValueError: The model has a radius; :func:`molattn.explain.explain` explains it.
    """
    if model.config.network.radius is not None:
        raise ValueError(
            f"model: got one with the radius {model.config.network.radius}, expected one of all "
            "pairs; molattn.explain.explain explains it"
        )
    featurizer = model.config.featurizer
    loops = model.config.network.self_loops
    record = model.featurize(smiles)
    data = from_smiles(
        record.standardized or smiles,
        self_loops=loops,
        featurizer=featurizer,
        unify_drawings=model.config.unify_drawings,
    )
    data.x = torch.from_numpy(one_hot(data["x"].numpy(), featurizer.atom_sizes))
    data.edge_attr = torch.from_numpy(one_hot(data["edge_attr"].numpy(), featurizer.pair_sizes))
    if record.numbers is not None:
        data.numbers = torch.from_numpy(record.numbers).unsqueeze(0)
    return data
