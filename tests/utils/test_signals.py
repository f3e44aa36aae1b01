import signal
from threading import Thread

import pytest

from molattn.utils.signals import (
    Interrupted,
    interrupts_deferred,
    pending_interrupt,
    signals_handled,
)


@pytest.mark.parametrize(
    "one, words", [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated (SIGTERM)")]
)
def test_a_signal_raises_and_the_former_handlers_return(one, words):
    before = signal.getsignal(one)
    with pytest.raises(Interrupted) as caught, signals_handled():
        signal.raise_signal(one)
    assert (caught.value.signum, str(caught.value)) == (one, words)
    assert signal.getsignal(one) is before
    assert pending_interrupt() is None


def test_a_deferred_signal_is_noted_and_raised_when_the_block_ends():
    steps = []

    def work():
        with signals_handled(), interrupts_deferred():
            signal.raise_signal(signal.SIGTERM)
            pending = pending_interrupt()
            steps.append(pending and pending.signum)
            steps.append(pending_interrupt(grace=60.0))

    with pytest.raises(Interrupted, match="terminated"):
        work()
    assert steps == [signal.SIGTERM, None]


def test_a_deferred_signal_is_raised_from_the_error_of_the_block():
    def work():
        with signals_handled(), interrupts_deferred():
            signal.raise_signal(signal.SIGTERM)
            raise ValueError("diverged")

    with pytest.raises(Interrupted, match="terminated") as caught:
        work()
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_second_signal_is_not_deferred():
    def work():
        with signals_handled(), interrupts_deferred():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("not reached")

    with pytest.raises(Interrupted) as caught:
        work()
    assert caught.value.signum == signal.SIGINT


def test_other_threads_leave_signals_alone():
    handler = signal.getsignal(signal.SIGTERM)
    seen = []

    def work():
        with signals_handled():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [handler]
