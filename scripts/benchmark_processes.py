"""Steps of training in one process and in two: CPU time of each, and how even their parts are.

CPU times depend little on what else the machine does, unlike the steps a second. Usage:

    python scripts/benchmark_processes.py train pretrain --file molecules.smi.gz
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np

_RANK = "RANK"
_SKIPPED = 5
"""First steps, which are not measured."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("tasks", nargs="*", default=["train", "pretrain"])
    parser.add_argument("--file", type=Path, required=True, help="molecules (.smi or .smi.gz)")
    parser.add_argument("--molecules", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--width", type=int, default=128, help="of the network in pretraining")
    parser.add_argument("--targets", nargs="+", help="of pretraining; by default all but columns")
    options = parser.parse_args()
    if _RANK in os.environ:
        _measure(options)
        return
    print(
        "| task | processes | steps/s | CPU ms a step, each process | CPU, all | uneven cost, % | "
        "uneven CPU, % |\n|---|---|---|---|---|---|---|"
    )
    for task in options.tasks:
        for count in options.processes:
            print(_row(task, count, _run(task, count)), flush=True)


def _run(task: str, count: int) -> list[dict[str, float]]:
    """Run this script in several processes, and return what each of them measured."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = [word for word in sys.argv[1:] if word not in ("train", "pretrain")]
    shared = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "OMP_NUM_THREADS": 1}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCH_CPP_LOG_LEVEL": "ERROR"}
    running = []
    for rank in range(count):
        place = {
            name: str(one) for name, one in {**shared, _RANK: rank, "LOCAL_RANK": rank}.items()
        }
        words = [sys.executable, __file__, task, *given]
        environment = {**os.environ, **place}
        running.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True))
    return [json.loads(process.communicate()[0].splitlines()[-1]) for process in running]


def _row(task: str, count: int, found: list[dict[str, float]]) -> str:
    cpu = np.array([one["cpu"] for one in found]) * 1000
    cells = [
        task,
        count,
        f"{1 / found[0]['wall']:.2f}",
        ", ".join(f"{one:.0f}" for one in cpu),
        f"{cpu.sum():.0f}",
        f"{100 * found[0]['cost']:.2f}",
        f"{100 * (cpu.max() / cpu.mean() - 1):.1f}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _measure(options: argparse.Namespace) -> None:
    """Train in this process of a group, and print what a step takes."""
    from molattn.training.batches import ResumableLoader, split_evenly
    from molattn.training.lightning.module import TrainingModule
    from molattn.utils.process_group import joined_group, num_processes

    times, uneven = [], []
    step, own_part = TrainingModule.on_train_batch_start, ResumableLoader.own_part

    def on_train_batch_start(self, *args):
        times.append((time.process_time(), time.perf_counter()))
        step(self, *args)

    def part(self, rows):
        costs = self.costs(rows)
        loads = [costs[one].sum() for one in split_evenly(costs, num_processes())]
        uneven.append(max(loads) / np.mean(loads) - 1)
        return own_part(self, rows)

    TrainingModule.on_train_batch_start = on_train_batch_start  # pyright: ignore
    ResumableLoader.own_part = part  # pyright: ignore
    if int(os.environ["WORLD_SIZE"]) == 1:
        _train(options)
    else:
        with joined_group() as is_first:
            if is_first:
                _train(options)
    each = np.diff(np.array(times[_SKIPPED : options.steps]), axis=0)
    cpu, wall = each.mean(axis=0)
    print(json.dumps({"cpu": cpu, "wall": wall, "cost": float(np.mean(uneven or [0.0]))}))


def _train(options: argparse.Namespace) -> None:
    from molattn.config import (
        NetworkConfig,
        PretrainConfig,
        PretrainLoopConfig,
        PretrainNetworkConfig,
        SupervisedConfig,
    )
    from molattn.data.dataset import Molecules
    from molattn.data.table import open_table
    from molattn.errors import SmilesError
    from molattn.model.model import MolAttn, MolAttnConfig
    from molattn.pretraining import pretrain
    from molattn.task import Task
    from molattn.training.supervised import fit_model

    smiles = [row.cells[0] for row in islice(open_table(options.file), options.molecules)]
    loop = {"epochs": 1, "device": "cpu", "batch_size": options.batch_size}
    if options.targets:
        loop["targets"] = tuple(options.targets)
    count = options.steps * options.batch_size
    if options.tasks == ["pretrain"]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "some.smi"
            file.write_text("\n".join(smiles) + "\n")
            config = PretrainConfig(
                (str(file),),
                network=PretrainNetworkConfig(width=options.width),
                training=PretrainLoopConfig(**loop),
            )
            pretrain(config, Path(folder))
        return
    model = MolAttn(MolAttnConfig((Task("y"),), NetworkConfig()))
    records = []
    for text in smiles:
        try:
            records.append(model.featurize(text))
        except SmilesError:
            continue
    rows = [records[place % len(records)] for place in range(count)]
    targets = np.random.default_rng(0).normal(size=(count, 1))
    nothing = Molecules([], np.zeros((0, 1)))
    fit_model(model, Molecules(rows, targets), nothing, SupervisedConfig(**loop))


if __name__ == "__main__":
    main()
