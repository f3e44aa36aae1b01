import asyncio
import threading
from contextlib import contextmanager

import numpy as np
import pytest

from molattn.config import ServeConfig
from molattn.serve import batching
from molattn.serve.batching import BusyError, Query, Worker

from .conftest import run_apart


@pytest.fixture
def mixed(catalog):
    return catalog["mixed"]


@pytest.fixture
def working(catalog):
    """A worker with options; a context manager of it and of the sizes of its batches."""

    @contextmanager
    def opened(**options):
        sizes = []
        worker = Worker(catalog, ServeConfig(**options), sizes.append)
        try:
            yield worker, sizes
        finally:
            worker.close()

    return opened


@pytest.fixture
def gate(monkeypatch):
    """Holds the first batch until it is opened."""
    entered, opened, original = threading.Event(), threading.Event(), batching.computed

    def computed(spec, batch):
        entered.set()
        assert opened.wait(60)
        return original(spec, batch)

    monkeypatch.setattr(batching, "computed", computed)
    opened.entered = entered
    yield opened
    opened.set()


def asked(*smiles):
    return [Query(one) for one in smiles]


async def entered(event):
    await asyncio.to_thread(event.wait, 60)


def test_molecules_that_wait_are_predicted_together_and_each_request_gets_its_own(
    working, mixed, gate
):
    smiles = [["C" * n, "C" * n + "O", "C("][: 1 + n % 3] for n in range(1, 41)]

    async def main(worker):
        first = asyncio.ensure_future(worker.predict(mixed, 0.9, asked("N")))
        await entered(gate.entered)
        others = [
            asyncio.ensure_future(worker.predict(mixed, 0.9, asked(*some))) for some in smiles
        ]
        await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(first, *others)

    with working() as (worker, sizes):
        first, *found = run_apart(main(worker))
    assert sizes == [1, sum(map(len, smiles))]
    assert len(first) == 1
    for some, answers in zip(smiles, found, strict=True):
        good = [one for one in some if one != "C("]
        values = [answer.cells[0] for answer in answers if not answer.code]
        np.testing.assert_allclose(values, mixed.model.predict(good)[:, 0], rtol=1e-4)
        assert [answer.code for answer in answers] == [
            "parenthesis" if one == "C(" else "" for one in some
        ]


def test_batches_have_at_most_the_size_and_other_levels_and_models_apart(working, catalog, gate):
    mixed, pair = catalog["mixed"], catalog["pair"]

    async def main(worker):
        pairs = [Query("C", "O", (1.0,))]
        waiting = [asyncio.ensure_future(worker.predict(mixed, 0.9, asked("N")))]
        await entered(gate.entered)
        for served, level, queries in [
            (mixed, 0.9, asked("C", "CC", "CCC")),
            (pair, 0.9, pairs),
            (mixed, 0.8, asked("C")),
            (mixed, 0.9, asked("CC")),
            (mixed, 0.9, asked("CO")),
        ]:
            waiting.append(asyncio.ensure_future(worker.predict(served, level, queries)))
            await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(*waiting)

    with working(batch_size=4, max_queue=10_000) as (worker, sizes):
        found = run_apart(main(worker))
    assert sizes == [1, 4, 1, 1, 1]  # the first four of 0.9, the pair, those of 0.8, the last
    low, narrow = found[1][0].cells, found[3][0].cells
    assert low[0] == pytest.approx(narrow[0], rel=1e-4)
    assert narrow[2] - narrow[1] < low[2] - low[1]


def test_a_request_that_fails_leaves_the_others(working, mixed, gate, monkeypatch):
    original = batching.computed

    def computed(spec, batch):
        if any(row.smiles == "CBr" for row in batch):
            raise RuntimeError("broken")
        return original(spec, batch)

    monkeypatch.setattr(batching, "computed", computed)

    async def main(worker):
        first = asyncio.ensure_future(worker.predict(mixed, 0.9, asked("N")))
        await entered(gate.entered)
        others = [
            asyncio.ensure_future(worker.predict(mixed, 0.9, asked(one)))
            for one in ("C", "CBr", "CO")
        ]
        await asyncio.sleep(0)
        gate.set()
        await first
        return await asyncio.gather(*others, return_exceptions=True)

    with working() as (worker, _):
        good, bad, other = run_apart(main(worker))
    assert isinstance(bad, RuntimeError)
    expected = mixed.model.predict(["C", "CO"])[:, 0]
    np.testing.assert_allclose([good[0].cells[0], other[0].cells[0]], expected, rtol=1e-4)


def test_a_cancelled_request_is_not_predicted(working, mixed, gate):
    async def main(worker):
        first = asyncio.ensure_future(worker.predict(mixed, 0.9, asked("N")))
        await entered(gate.entered)
        with worker.reserve(200):
            cancelled = asyncio.ensure_future(worker.predict(mixed, 0.9, asked(*["C"] * 200)))
            other = asyncio.ensure_future(worker.predict(mixed, 0.9, asked("CO")))
            await asyncio.sleep(0)
            cancelled.cancel()
            await asyncio.sleep(0)
        gate.set()
        return await first, await other

    with working() as (worker, sizes):
        run_apart(main(worker))
        assert sizes == [1, 1]
        assert worker.reserved == 0


def test_no_more_molecules_wait_than_the_queue_holds(working):
    with working(max_queue=300, max_molecules=300) as (worker, _), worker.reserve(200):
        with pytest.raises(BusyError, match="got 101 molecules while 200 are waiting"):
            worker.reserve(101).__enter__()
        with worker.reserve(100):
            pass
        assert worker.reserved == 200


def test_a_molecule_that_is_slow_to_read_keeps_no_other_waiting(working, mixed, monkeypatch):
    opened, original = threading.Event(), batching._read_one

    def read(reader, query):
        assert opened.wait(60)
        return original(reader, query)

    monkeypatch.setattr(batching, "_read_one", read)
    slow = "C" * 300

    async def main(worker):
        waiting = asyncio.ensure_future(worker.predict(mixed, 0.9, asked("C", slow, "CC")))
        (other,) = await worker.predict(mixed, 0.9, asked("CO"))
        assert not waiting.done()
        opened.set()
        return other, await waiting

    with working() as (worker, _):
        other, found = run_apart(main(worker))
    values = [other.cells[0], *(answer.cells[0] for answer in found)]
    expected = mixed.model.predict(["CO", "C", slow, "CC"])[:, 0]
    np.testing.assert_allclose(values, expected, rtol=1e-4)


def test_steps_of_tables_and_molecules_take_turns(working, mixed, gate, monkeypatch):
    order, original = [], batching.computed

    def computed(spec, batch):
        order.append(batch[0].smiles)
        return original(spec, batch)

    monkeypatch.setattr(batching, "computed", computed)

    async def main(worker):
        first = asyncio.ensure_future(worker.predict(mixed, 0.9, asked("N")))
        await entered(gate.entered)
        steps = [
            asyncio.ensure_future(worker.run(mixed, lambda batch, k=k: order.append(k), [k]))
            for k in range(3)
        ]
        await asyncio.sleep(0)
        other = asyncio.ensure_future(worker.predict(mixed, 0.9, asked("CO")))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(first, *steps, other)

    with working() as (worker, sizes):
        run_apart(main(worker))
    assert order == ["N", 0, "CO", 1, 2]
    assert len(sizes) == 5
