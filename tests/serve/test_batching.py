"""Requests that wait are predicted together, and each gets its own."""

import asyncio
import threading

import numpy as np
import pytest

from molattn.config import ServeConfig
from molattn.serve import batching
from molattn.serve.batching import Work, Worker
from molattn.serve.bodies import PredictRequest, json_table

from ..conftest import HANGING
from .conftest import run_apart


@pytest.fixture
def run(monkeypatch):
    """Run requests that wait while the first batch, of another, is held.

    Returns their results, or errors, and the sizes of the batches.
    """
    entered, opened, sizes, original = (
        threading.Event(),
        threading.Event(),
        [],
        batching.compute_rows,
    )

    def compute_rows(spec, batch):
        sizes.append(len(batch))
        entered.set()
        assert opened.wait(HANGING)
        if any(row.smiles == "CBr" for row in batch):
            raise RuntimeError("broken")
        return original(spec, batch)

    async def predict(worker, served, level, *smiles):
        of_pair = {"partner": ["O"], "features": {"temperature": [1.0]}}
        others = of_pair if served.name == "pair" else {}
        table = json_table(served, PredictRequest(smiles=[*smiles], **others), ServeConfig())
        work = Work(served, table, level, quick=len(smiles))
        return [one async for batch in worker.predict(work, threading.Event()) for one in batch]

    async def whole(served, requests, cancelled, options):
        worker = Worker(ServeConfig(**options))
        running = asyncio.create_task(worker.run())
        try:
            first = asyncio.ensure_future(predict(worker, served, 0.9, "N"))
            await asyncio.to_thread(entered.wait, HANGING)
            tasks = []
            for words in requests:
                tasks.append(asyncio.ensure_future(predict(worker, *words)))
                await asyncio.sleep(0)  # each is in the queue before the next
            for number in cancelled:
                tasks[number].cancel()
            await asyncio.sleep(0)
            opened.set()
            await first
            found = asyncio.gather(*tasks, return_exceptions=True)
            return await asyncio.wait_for(found, HANGING)
        finally:
            opened.set()
            running.cancel()
            worker.close()

    def run(served, *requests, cancelled=(), **options):
        return run_apart(whole(served, requests, cancelled, options)), sizes

    monkeypatch.setattr(batching, "compute_rows", compute_rows)
    return run


def test_requests_that_wait_are_predicted_together_and_each_gets_its_own(run, catalog):
    mixed = catalog.models["mixed"]
    smiles = [["C" * n, "C" * n + "O", "C("][: 1 + n % 3] for n in range(1, 11)]
    found, sizes = run(mixed, *((mixed, 0.9, *some) for some in smiles))
    assert sizes == [1, sum(map(len, smiles))]
    for some, answers in zip(smiles, found, strict=True):
        good = [one for one in some if one != "C("]
        values = [cells[0] for _, cells, code in answers if not code]
        np.testing.assert_allclose(values, mixed.model.predict(good)[:, 0], rtol=1e-4)
        assert [bool(code) for *_, code in answers] == [one == "C(" for one in some]


def test_batches_have_at_most_the_size_and_other_levels_and_models_apart(run, catalog):
    mixed, pair = catalog.models["mixed"], catalog.models["pair"]
    found, sizes = run(
        mixed,
        (mixed, 0.9, "C", "CC", "CCC"),
        (pair, 0.9, "C"),
        (mixed, 0.8, "C"),
        (mixed, 0.9, "CC"),
        (mixed, 0.9, *["C"] * 3),
        (mixed, 0.9, "CO"),
        batch_size=4,
        cancelled=[4],
    )
    assert sizes == [1, 4, 1, 1, 1]  # the first four of 0.9, the pair, that of 0.8, the last
    low, narrow = found[0][0][1], found[2][0][1]
    assert low[0] == pytest.approx(narrow[0], rel=1e-4)
    assert narrow[2] - narrow[1] < low[2] - low[1]


def test_a_request_that_fails_leaves_the_others(run, catalog):
    mixed = catalog.models["mixed"]
    (good, bad, other), _ = run(mixed, *((mixed, 0.9, one) for one in ("C", "CBr", "CO")))
    assert isinstance(bad, RuntimeError)
    expected = mixed.model.predict(["C", "CO"])[:, 0]
    np.testing.assert_allclose([good[0][1][0], other[0][1][0]], expected, rtol=1e-4)


def test_a_batch_of_requests_that_were_given_up_ends_nothing(run, catalog):
    mixed = catalog.models["mixed"]
    found, sizes = run(mixed, (mixed, 0.8, "C"), (mixed, 0.9, "CC"), cancelled=[0])
    assert sizes == [1, 1]
    assert not found[1][0][2]
