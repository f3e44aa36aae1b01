"""How the benchmark scripts measure: interleaved medians, and memory."""

import statistics
import time
from collections.abc import Callable, Mapping

import torch
from torch.profiler import ProfilerActivity, profile


def interleaved(
    runs: Mapping[str, Callable[[], object]],
    repeats: int,
    device: torch.device,
    warmup: int = 3,
    *,
    cold: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median milliseconds of each run; in every round each is timed once, so that drift is shared.

    Before it is timed a run is made once untimed, as layers follow layers of their kind in a model;
    ``cold`` leaves this out, and each finds the caches full of what another left. ``clock`` returns
    seconds: ``time.process_time`` does not count those in which other processes run.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for round_ in range(warmup + repeats):
        for name, run in runs.items():
            if not cold:
                run()
            _wait(device)
            start = clock()
            run()
            _wait(device)
            if round_ >= warmup:
                times[name].append(1e3 * (clock() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def saved_bytes(forward: Callable[[], object]) -> int:
    """Bytes of distinct storages that autograd keeps for the backward pass."""
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = forward()
    del out
    return sum(kept.values())


def peak_bytes(run: Callable[[], object], device: torch.device) -> int:
    """Largest number of bytes allocated at once during a run, over what was there before."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        run()
    results = recorded.profiler.kineto_results if recorded.profiler else None
    events = results.events() if results else []
    changes = sorted(
        (e.start_ns(), e.nbytes())  # pyright: ignore[reportAttributeAccessIssue]
        for e in events
        if e.name() == "[memory]"
    )
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
