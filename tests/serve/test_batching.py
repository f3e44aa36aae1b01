import asyncio
import threading
from contextlib import contextmanager

import numpy as np
import pytest

from molattn.config import ServeConfig
from molattn.serve import batching
from molattn.serve.batching import BusyError, Work, Worker
from molattn.serve.bodies import PredictRequest, json_table
from molattn.serve.metrics import Metrics

from .conftest import run_apart


class Sizes(Metrics):
    """Keeps the sizes of the batches."""

    def __init__(self):
        super().__init__(lambda: 0)
        self.sizes = []

    def batch(self, count):
        self.sizes.append(count)


@pytest.fixture
def mixed(catalog):
    return catalog["mixed"]


@pytest.fixture
def run():
    """Run a coroutine of a worker; return its result and the sizes of the batches."""

    def run(main, **options):
        metrics = Sizes()

        async def whole():
            worker = Worker(ServeConfig(**options), metrics)
            running = asyncio.create_task(worker.run())
            try:
                return await main(worker)
            finally:
                running.cancel()
                worker.close()

        return run_apart(whole()), metrics.sizes

    return run


async def predict(worker, served, level, *smiles, **others):
    asked = PredictRequest(smiles=[*smiles], **others)
    table = json_table(served, asked, ServeConfig())
    work = Work(served, table, level, smiles=smiles)
    return [one async for found in worker.predict(work, threading.Event()) for one in found]


@pytest.fixture
def gate(monkeypatch):
    """Holds the first batch until it is opened."""
    entered, opened, original = threading.Event(), threading.Event(), batching.computed

    def computed(spec, batch):
        entered.set()
        assert opened.wait(60)
        if any(row.smiles == "CBr" for row in batch):
            raise RuntimeError("broken")
        return original(spec, batch)

    @contextmanager
    def closed():
        yield
        opened.set()

    monkeypatch.setattr(batching, "computed", computed)
    closed.entered = entered
    yield closed
    opened.set()


async def behind(worker, served, gate, *waiting):
    """Start requests while the first batch, of another, is held; return their results."""
    first = asyncio.ensure_future(predict(worker, served, 0.9, "N"))
    await asyncio.to_thread(gate.entered.wait, 60)
    with gate():
        others = []
        for one in waiting:
            others.append(asyncio.ensure_future(one))
            await asyncio.sleep(0.05)  # each is read before the next
    await first
    return await asyncio.gather(*others, return_exceptions=True)


def test_requests_that_wait_are_predicted_together_and_each_gets_its_own(run, mixed, gate):
    smiles = [["C" * n, "C" * n + "O", "C("][: 1 + n % 3] for n in range(1, 11)]

    async def main(worker):
        return await behind(
            worker, mixed, gate, *(predict(worker, mixed, 0.9, *some) for some in smiles)
        )

    found, sizes = run(main)
    assert sizes == [1, sum(map(len, smiles))]
    for some, answers in zip(smiles, found, strict=True):
        good = [one for one in some if one != "C("]
        values = [cells[0] for _, cells, code in answers if not code]
        np.testing.assert_allclose(values, mixed.model.predict(good)[:, 0], rtol=1e-4)
        assert [code for *_, code in answers] == [
            "parenthesis" if one == "C(" else "" for one in some
        ]


def test_batches_have_at_most_the_size_and_other_levels_and_models_apart(run, catalog, gate):
    mixed, pair = catalog["mixed"], catalog["pair"]

    async def main(worker):
        return await behind(
            worker,
            mixed,
            gate,
            predict(worker, mixed, 0.9, "C", "CC", "CCC"),
            predict(worker, pair, 0.9, "C", partner=["O"], features={"temperature": [1.0]}),
            predict(worker, mixed, 0.8, "C"),
            predict(worker, mixed, 0.9, "CC"),
            predict(worker, mixed, 0.9, "CO"),
        )

    found, sizes = run(main, batch_size=4)
    assert sizes == [1, 4, 1, 1, 1]  # the first four of 0.9, the pair, that of 0.8, the last
    low, narrow = found[0][0][1], found[2][0][1]
    assert low[0] == pytest.approx(narrow[0], rel=1e-4)
    assert narrow[2] - narrow[1] < low[2] - low[1]


def test_a_request_that_fails_leaves_the_others(run, mixed, gate):
    async def main(worker):
        return await behind(
            worker, mixed, gate, *(predict(worker, mixed, 0.9, one) for one in ("C", "CBr", "CO"))
        )

    (good, bad, other), _ = run(main)
    assert isinstance(bad, RuntimeError)
    expected = mixed.model.predict(["C", "CO"])[:, 0]
    np.testing.assert_allclose([good[0][1][0], other[0][1][0]], expected, rtol=1e-4)


def test_a_cancelled_request_is_not_predicted(run, mixed, gate):
    async def main(worker):
        async def cancelled():
            waiting = asyncio.ensure_future(predict(worker, mixed, 0.9, *["C"] * 50))
            await asyncio.sleep(0.05)
            waiting.cancel()

        return await behind(worker, mixed, gate, cancelled(), predict(worker, mixed, 0.9, "CO"))

    assert run(main)[1] == [1, 1]


def test_no_more_molecules_wait_than_the_queue_holds(run):
    async def main(worker):
        with worker.reserve(200):
            with pytest.raises(BusyError):
                worker.reserve(101).__enter__()
            with worker.reserve(100):
                pass
        return worker.reserved

    assert run(main, max_queue=300, max_molecules=300)[0] == 0


def test_a_molecule_that_is_slow_to_read_keeps_no_other_waiting(run, mixed):
    async def main(worker):
        held, opened = threading.Event(), threading.Event()
        for _ in range(4):  # all threads of slow work
            worker.slow.submit(lambda: (held.set(), opened.wait(60)))
        slow = asyncio.ensure_future(predict(worker, mixed, 0.9, "C", "C" * 300))
        (other,) = await predict(worker, mixed, 0.9, "CO")
        assert not slow.done()
        opened.set()
        return other, await slow

    (other, found), _ = run(main)
    expected = mixed.model.predict(["CO", "C", "C" * 300])[:, 0]
    np.testing.assert_allclose([cells[0] for _, cells, _ in (other, *found)], expected, rtol=1e-4)
