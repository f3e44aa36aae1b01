"""Steps of training in one process and in two: CPU time of each, and how even their parts are.

CPU times depend little on what else the machine does, unlike the steps a second. Usage:

    python -m scripts.benchmarks.benchmark_processes train pretrain --file molecules.smi.gz
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd

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
        "| task | processes | steps/s | CPU ms a step, each process | CPU, all | "
        "uneven CPU, % |\n|---|---|---|---|---|---|"
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
        f"{100 * (cpu.max() / cpu.mean() - 1):.1f}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _measure(options: argparse.Namespace) -> None:
    """Train in this process of a group, and print what a step takes."""
    from molattn.training.module import TrainingModule
    from molattn.utils.process_group import joined_group

    times = []
    step = TrainingModule.on_train_batch_start

    def on_train_batch_start(self, *args):
        times.append((time.process_time(), time.perf_counter()))
        step(self, *args)

    TrainingModule.on_train_batch_start = on_train_batch_start  # pyright: ignore
    with joined_group() if int(os.environ["WORLD_SIZE"]) > 1 else nullcontext():
        _train(options)
    each = np.diff(np.array(times[_SKIPPED : options.steps]), axis=0)
    cpu, wall = each.mean(axis=0)
    print(json.dumps({"cpu": cpu, "wall": wall}))


def _train(options: argparse.Namespace) -> None:
    from molattn.config import (
        PretrainConfig,
        PretrainLoopConfig,
        PretrainNetworkConfig,
        TrainConfig,
    )
    from molattn.data.table import open_table
    from molattn.pretraining import pretrain
    from molattn.training.run import train

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
    count = round(count / 0.9)  # a tenth is for validation
    rows = [smiles[row % len(smiles)] for row in range(count)]
    frame = pd.DataFrame({"smiles": rows, "y": np.random.default_rng(0).normal(size=count)})
    more = {"target_columns": "y", "predictor": "network", "init_from": "none", "baselines": False}
    more |= {"test_size": 0.0, "validation_size": 0.1}
    train(TrainConfig.from_options("", {**loop, **more}), frame=frame)


if __name__ == "__main__":
    main()
