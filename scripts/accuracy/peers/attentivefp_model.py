"""Train PyG's AttentiveFP on molecular graphs, and predict every row of the table.

All that PyG's ``from_smiles`` says of atoms and bonds is given as one-hot codes. The loss of the
validation rows chooses the epoch.

Xiong et al., J. Med. Chem. 2020, 63, 8749.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss, one_hot
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import AttentiveFP
from torch_geometric.utils import from_smiles
from torch_geometric.utils.smiles import e_map, x_map
from worker import parser, read_table, write_predictions

ATOM_SIZES, BOND_SIZES = ([len(values) for values in m.values()] for m in (x_map, e_map))
LOSSES = {"regression": mse_loss, "binary": binary_cross_entropy_with_logits}
LARGEST_BATCH, SMALLEST_BATCH, STEPS = 200, 16, 20


def graph(smiles: str, label: float) -> Data:
    """Return a molecule with one-hot codes of its atoms and bonds."""
    data = from_smiles(smiles)
    assert data.x is not None
    assert data.edge_attr is not None
    return Data(
        x=coded(data.x, ATOM_SIZES),
        edge_index=data.edge_index,
        edge_attr=coded(data.edge_attr, BOND_SIZES),
        y=torch.tensor([label], dtype=torch.float32),
    )


def coded(codes: Tensor, sizes: list[int]) -> Tensor:
    """Return the one-hot codes of all columns side by side."""
    columns = [one_hot(column, size) for column, size in zip(codes.t(), sizes, strict=True)]
    return torch.cat(columns, dim=1).float()


def outputs(model: nn.Module, graphs: list[Data]) -> tuple[Tensor, Tensor]:
    """Return what the model makes of molecules, and their labels."""
    model.eval()
    with torch.no_grad():
        pairs = [(apply(model, batch), batch.y) for batch in DataLoader(graphs, LARGEST_BATCH)]
    guesses, labels = zip(*pairs, strict=True)
    return torch.cat(guesses), torch.cat(labels)


def apply(model: nn.Module, batch: Data) -> Tensor:
    return model(batch.x, batch.edge_index, batch.edge_attr, batch.batch).flatten()


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--epochs", type=int, default=60)
    arguments.add_argument("--hidden", type=int, default=200, help="width")
    arguments.add_argument("--layers", type=int, default=2)
    arguments.add_argument("--timesteps", type=int, default=2)
    arguments.add_argument("--dropout", type=float, default=0.2)
    arguments.add_argument("--learning-rate", type=float, default=10**-2.5)
    arguments.add_argument("--weight-decay", type=float, default=1e-5)
    arguments.add_argument(
        "--batch-size", type=int, help="(default: 20 batches an epoch, of 16 to 200 molecules)"
    )
    options = arguments.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)

    table = read_table(options.table)
    train, validation = table.rows("train"), table.rows("val")
    is_regression = options.kind == "regression"
    known = torch.as_tensor(table.y[train])
    mean, sd = (float(known.mean()), float(known.std()) or 1.0) if is_regression else (0.0, 1.0)
    y = (table.y - mean) / sd
    graphs = [graph(smiles, label) for smiles, label in zip(table.smiles, y, strict=True)]
    size = options.batch_size or min(LARGEST_BATCH, max(SMALLEST_BATCH, len(train) // STEPS))
    loader = DataLoader([graphs[row] for row in train], size, shuffle=True)
    held_out = [graphs[row] for row in validation]

    model = AttentiveFP(
        in_channels=sum(ATOM_SIZES),
        hidden_channels=options.hidden,
        out_channels=1,
        edge_dim=sum(BOND_SIZES),
        num_layers=options.layers,
        num_timesteps=options.timesteps,
        dropout=options.dropout,
    )
    loss_of = LOSSES[options.kind]
    optimizer = torch.optim.Adam(
        model.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay
    )
    lowest, best = float("inf"), copy.deepcopy(model.state_dict())
    for epoch in range(1, options.epochs + 1):
        model.train()
        for batch in loader:
            optimizer.zero_grad()
            loss_of(apply(model, batch), batch.y).backward()
            optimizer.step()
        loss = float(loss_of(*outputs(model, held_out)))
        print(f"epoch {epoch}: validation loss {loss:.4f}", flush=True)
        if loss < lowest:
            lowest, best = loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    guess = outputs(model, graphs)[0]
    guess = guess * sd + mean if is_regression else guess.sigmoid()
    write_predictions(options.output, guess.tolist())


if __name__ == "__main__":
    main()
