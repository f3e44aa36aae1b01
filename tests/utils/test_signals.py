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


@pytest.mark.parametrize("end", [None, ValueError("diverged"), signal.SIGINT])
def test_a_deferred_signal_is_noted_and_raised_when_the_block_ends(end):
    """After an error it is raised from that; a second signal is not deferred."""
    steps = []

    def work():
        with signals_handled(), interrupts_deferred():
            signal.raise_signal(signal.SIGTERM)
            steps.append(str(pending_interrupt()))
            if isinstance(end, ValueError):
                raise end
            if end is not None:
                signal.raise_signal(end)
                steps.append("not reached")

    with pytest.raises(Interrupted) as caught:
        work()
    assert steps == ["terminated (SIGTERM)"]
    assert caught.value.signum == (signal.SIGINT if end is signal.SIGINT else signal.SIGTERM)
    assert caught.value.__cause__ is (end if isinstance(end, ValueError) else None)


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
