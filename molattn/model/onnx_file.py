"""``molattn export --to onnx``: a model as an ONNX file."""

import copy
import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from molattn.chem.fingerprints import SubstructureCounter
from molattn.errors import InputError
from molattn.graph.batch import MoleculeBatch
from molattn.graph.padded import PaddedGraphs
from molattn.model.model import MolAttn
from molattn.model.network import Network
from molattn.model.onnx_kernel import ExportedProcess
from molattn.model.outputs import class_probabilities, mean_of_members
from molattn.model.scaling import scaled_numbers
from molattn.model.sites import element_column, unlabeled_elements
from molattn.model.target_transform import IdentityTransform, own_units
from molattn.model.uncertainty import Part, ProbabilityScaling, calibrated_outputs
from molattn.nn.graph_inputs import EdgeAttr, edge_features
from molattn.nn.registry import LAYERS
from molattn.nn.site_head import bond_vectors
from molattn.record import NO_EDGE
from molattn.version import __version__

TestScores = Mapping[str, Mapping[str, Mapping[str, float | None]]]
"""Scores by model, task and metric; None = undefined."""

_EXAMPLE = {"molecules": 3, "atoms": 17, "partner_atoms": 19}  # sizes unlike any width


class ExportedModel(nn.Module):
    """A model, from the codes of padded molecules to predictions in own units.

    It predicts the mean of the members, as :meth:`molattn.MolAttn.predict` does. If the Gaussian
    process of a model is left out, probabilities are not calibrated, because the calibration was
    fitted to both together.

    Its outputs are ``predictions``, ``float64 [n, outputs]``, unless it predicts atoms and bonds
    alone; ``embeddings``, ``float32 [n, width]``; and of a model of atoms ``atom_predictions``,
    ``float64 [n, N, outputs]``, of bonds ``bond_predictions``, ``float64 [n, N, N, outputs]``. They
    are in the order of the input ``atoms``, NaN of elements without a training label; rows of
    padding and pairs without a bond mean nothing.

    Args:
        model: The model.
        test_scores: Test scores by model (``network`` alone, ``test`` the whole) and task, which
            the file repeats.
        with_gaussian_process: Whether the Gaussian process is exported too.
    """

    mean: Tensor
    scale: Tensor
    limits: Tensor

    def __init__(
        self,
        model: MolAttn,
        test_scores: TestScores | None = None,
        *,
        with_gaussian_process: bool = False,
    ) -> None:
        super().__init__()
        self.test_scores = test_scores or {}
        self.model = copy.deepcopy(model).cpu().float().eval()
        self.config = model.config
        sizes = torch.tensor([task.num_outputs for task in self.config.tasks], dtype=torch.long)
        for name in ("mean", "scale"):  # of each output
            values = self.model.get_buffer(f"target_{name}").double()
            self.register_buffer(name, values.repeat_interleave(sizes))
        self.parts = () if model.uncertainty is None else model.uncertainty.calibration.parts
        self.register_buffer("limits", torch.from_numpy(model.predictor.output_limits))
        self.process: ExportedProcess | None = None
        if with_gaussian_process and model.gaussian_process is not None:
            sizes = len(self.config.features), len(self.config.descriptors)
            self.process = ExportedProcess(model.gaussian_process, *sizes)
        for level in self.config.site_tasks:
            unlabeled = unlabeled_elements(self.config, model.site_calibration, level)
            self.register_buffer(f"unlabeled_{level}s", torch.from_numpy(unlabeled))
        is_whole = self.process is not None or model.gaussian_process is None
        self.calibration: tuple[Part, ...] = self.parts if is_whole else ()

    def left_out(self) -> list[str]:
        """Return what predictions of the exported model lack, compared with molattn."""
        missing: list[str] = []
        head = self.model.gaussian_process
        if head is not None and self.process is None:
            shares = [f"{end:.0%}" for end in (head.shares.min(), head.shares.max())]
            share = " to ".join(dict.fromkeys(shares))
            missing.append(f"the Gaussian process ({share} of the prediction)")
            if any(isinstance(part, ProbabilityScaling) for part in self.parts):
                missing.append("the calibration of probabilities, which is of both together")
        if self.parts and any(task.kind == "regression" for task in self.config.tasks):
            missing.append("prediction intervals")
        if self.parts:
            missing += ["training similarity", "confidence"]
        if (calibration := self.model.site_calibration) is not None:
            for level, process in calibration.processes.items():
                pairs = process.head.share_by_task.items()
                shares = ", ".join(f"{share:.0%} of {name}" for name, share in pairs)
                missing.append(f"the Gaussian process of {level}s ({shares})")
            missing.append("prediction intervals of atoms and bonds")
        if names := ", ".join(self.config.written_tasks):
            missing.append(f"{names} for molecules as written (this file predicts their parents)")
        if self.config.members > 1:
            missing.append(f"the deviation between the {self.config.members} networks")
        return missing

    def network_weights(self) -> dict[str, float]:
        """Return the weight of the network in the prediction of each task beside a process."""
        calibration = self.model.site_calibration
        of_sites = calibration.processes.values() if calibration else ()
        heads = (self.model.gaussian_process, *(process.head for process in of_sites))
        shares = [head.share_by_task.items() for head in heads if head is not None]
        return {name: round(1.0 - share, 6) for name, share in chain.from_iterable(shares)}

    @property
    def counter(self) -> SubstructureCounter | None:
        """The counter of the substructures that the file reads."""
        return self.config.counter if self.process is not None else None

    def example(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return inputs to trace, and the names of their dimensions of any size."""
        inputs: dict[str, Tensor] = {}
        dims: dict[str, Any] = {}
        dim = {name: Dim(name, min=1) for name in _EXAMPLE}
        batch = _EXAMPLE["molecules"]
        columns = len(self.config.featurizer.atom_sizes)
        for prefix in ("", "partner_")[: 2 if self.config.has_partner else 1]:
            size = _EXAMPLE[f"{prefix}atoms"]
            sizes = dim[f"{prefix}atoms"]
            inputs[f"{prefix}atoms"] = torch.zeros(batch, size, columns, dtype=torch.uint8)
            inputs[f"{prefix}pairs"] = torch.zeros(batch, size, size, dtype=torch.uint8)
            dims[f"{prefix}atoms"] = {0: dim["molecules"], 1: sizes}
            dims[f"{prefix}pairs"] = {0: dim["molecules"], 1: sizes, 2: sizes}
            if (counter := self.counter) is not None:
                inputs[f"{prefix}counts"] = torch.zeros(batch, len(counter), dtype=torch.uint8)
                dims[f"{prefix}counts"] = {0: dim["molecules"]}
        if self.config.num_numbers:
            inputs["features"] = torch.zeros(batch, self.config.num_numbers, dtype=torch.float64)
            dims["features"] = {0: dim["molecules"]}
        return inputs, dims

    def forward(
        self,
        atoms: Tensor,
        pairs: Tensor,
        partner_atoms: Tensor | None = None,
        partner_pairs: Tensor | None = None,
        features: Tensor | None = None,
        counts: Tensor | None = None,
        partner_counts: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Return the outputs, see the class.

        For the inputs see :class:`molattn.chem.onnx_inputs.OnnxInputs`.
        """
        model = self.model
        tasks = self.config.tasks
        numbers = None
        more: dict[str, Any] = {}
        if partner_atoms is not None and partner_pairs is not None:
            more["partners"] = self._batch(partner_atoms, partner_pairs)
            more["partner_index"] = torch.arange(atoms.size(0) + 1)
        if features is not None:
            from_table = len(self.config.features)
            scaled = scaled_numbers(features, model.feature_mean, model.feature_scale, from_table)
            numbers = scaled.float()
        batch = self._batch(atoms, pairs, **more)
        outputs = []
        embeddings = []
        sites = []
        for net in model.networks.members:
            nodes, _, edges = net.encode_graphs(batch)
            molecules = net.encode(batch, nodes)[:-1]  # without the molecule of the padding
            outputs.append(net.decode(molecules, numbers))
            embeddings.append(net.project(molecules))
            elements = atoms[..., element_column(self.config.featurizer)].long()
            nodes = nodes.unflatten(0, atoms.shape[:2])
            sites.append(self._predict_sites(net, elements, nodes, edges))
        embedding = torch.cat(embeddings, dim=-1)
        of_sites = [torch.stack(of_members).mean(dim=0) for of_members in zip(*sites, strict=True)]
        if not tasks:
            return embedding, *of_sites
        values = torch.stack(outputs).double()
        if self.process is not None:
            values = self.process(values, embedding, features, counts, partner_counts)
        values = mean_of_members(values * self.scale + self.mean, tasks)
        if any(task.classes for task in tasks):
            values = calibrated_outputs(values, tasks, self.calibration)
        transforms = self.config.target_transforms
        if any(transform != IdentityTransform() for transform in transforms):
            values = own_units(values, tasks, transforms)
        return values.clamp(*self.limits), embedding, *of_sites

    def _predict_sites(
        self, net: Network, elements: Tensor, nodes: Tensor, edges: EdgeAttr
    ) -> list[Tensor]:
        """Predict the nodes ``[n, N, width]``, and all pairs as bonds, as the tasks ask for."""
        outputs = []
        for level, tasks in self.config.site_tasks.items():
            vectors = nodes
            index = (elements,)
            if level == "bond":
                index = elements.unsqueeze(2), elements.unsqueeze(1)
                pairs = edge_features(edges).unflatten(0, (*nodes.shape[:2], nodes.size(1)))
                ends = nodes.unsqueeze(1), nodes.unsqueeze(2)
                vectors = bond_vectors(*ends, pairs, pairs.transpose(1, 2))
            head = net.site_head(level)
            values = head.in_own_units(head(vectors)).double()
            unlabeled = self.get_buffer(f"unlabeled_{level}s")[index]
            outputs.append(class_probabilities(values, tasks).masked_fill(unlabeled, torch.nan))
        return outputs

    def _batch(self, atoms: Tensor, pairs: Tensor, **more: Any) -> MoleculeBatch:
        if pairs.shape != (atoms.size(0), atoms.size(1), atoms.size(1)):
            raise ValueError("pairs: expected as many atoms as in atoms")
        kinds = self.config.featurizer.num_pair_codes
        codes = pairs.mT.long()  # receivers first
        edges = codes != NO_EDGE
        nodes = edges.any(dim=-1)
        if not self.config.network.self_loops:
            index = torch.arange(codes.size(1))
            edges = edges & (index.unsqueeze(1) != index)
        codes = torch.where(edges, codes, kinds)
        graphs = PaddedGraphs(nodes, edges)
        pair_codes = torch.arange(kinds)
        x = atoms.flatten(0, 1).long()
        return MoleculeBatch(x, graphs, codes.flatten(), pair_codes, **more)

    def metadata(self) -> dict[str, Any]:
        """Return what the file says of itself."""
        config = self.config
        return {
            "molattn_version": __version__,
            "versions": dict(self.model.versions),
            "tasks": [task.to_dict() for task in config.tasks],
            "outputs": list(config.output_names),
            "site_outputs": {
                level: [name for task in tasks for name in task.output_names]
                for level, tasks in config.site_tasks.items()
            },
            "written_tasks": list(config.written_tasks),
            "is_calibrated": [isinstance(part, ProbabilityScaling) for part in self.calibration],
            "left_out": self.left_out(),
            "network_weights": self.network_weights(),
            "test_scores": self.test_scores,
            "inputs": {
                "featurizer": config.featurizer.to_dict(),
                "no_pair": NO_EDGE,
                "standardize": config.standardize,
                "unify_drawings": config.unify_drawings,
                "radius": config.network.radius,
                "hydrogens": config.hydrogens,
                "sites": bool(config.site_tasks),
                "features": list(config.features),
                "descriptors": list(config.calculator.descriptors),
                "morgan_counts": config.calculator.morgan_counts,
                "counts": None if self.counter is None else asdict(self.counter),
                "partner_column": config.partner_column,
            },
        }


def to_onnx(
    model: MolAttn, test_scores: TestScores | None = None, *, with_gaussian_process: bool = False
) -> tuple[bytes, ExportedModel]:
    """Return a model as an ONNX file, and what it contains; see :class:`ExportedModel`.

    Raises:
        InputError: A model whose networks cannot be exported, with the reason.
        ImportError: The package onnx or onnxscript is missing.
    """
    net = model.config.network
    obstacle = ""
    if parts := ", ".join(kind for _, kind in model.config.custom_parts):
        obstacle = f"the custom parts {parts}"
    elif not LAYERS[net.layer].complete_graphs:
        obstacle = f"the layer {net.layer}, which reads a list of edges"
    elif model.predictor.has_untrained_head and not with_gaussian_process:
        obstacle = "a Gaussian process that predicts alone, without --with-gaussian-process"
    elif model.config.charge_tasks:
        obstacle = "charges of atoms that sum to the charge of the molecule"
    if obstacle:
        message = f"onnx expected trained networks of layers for complete graphs, got {obstacle}"
        raise InputError(message, option="to")
    if with_gaussian_process and model.gaussian_process is None:
        message = "got a model without a Gaussian process of molecules"
        raise InputError(message, option="with_gaussian_process")
    exported = ExportedModel(model, test_scores, with_gaussian_process=with_gaussian_process)
    inputs, dims = exported.example()
    try:
        with _silent(), torch.no_grad():
            program = torch.export.export(exported, (), inputs, dynamic_shapes=dims, strict=False)
            outputs = ["predictions"] * bool(model.config.tasks) + ["embeddings"]
            outputs += [f"{level}_predictions" for level in model.config.site_tasks]
            names: Any = {"input_names": [*inputs], "output_names": outputs}
            names |= {"dynamic_shapes": dims, "dynamo": True, "verbose": False}
            file: Any = torch.onnx.export(program, kwargs=inputs, **names)
            for node in file.model.graph.all_nodes():
                node.metadata_props.clear()  # traces of the stack: a tenth of the file
            file.model.metadata_props["molattn"] = json.dumps(exported.metadata())
            return file.model_proto.SerializeToString(), exported
    except ImportError:
        raise
    except Exception as error:
        network = f"the layer {net.layer} with the readout {net.readout}"
        message = f"onnx expected a network that torch exports for all sizes, got {network}"
        raise InputError(message, option="to") from error


@contextmanager
def _silent() -> Iterator[None]:
    """Drop what torch and onnxscript log and print as they try one way after another."""
    nowhere = io.StringIO()
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(nowhere), redirect_stderr(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
