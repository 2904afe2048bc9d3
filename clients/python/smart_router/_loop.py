"""A background thread that repeats one thing: renewals of a call, or reports of a pod."""

from __future__ import annotations

import random
import threading
from typing import Callable

from ._requester import full_jitter
from ._transport import Cancel

_RETRY_BASE = 1.0


class Loop:
    """Repeats `run_once` until stop(). Turns never overlap, and the thread does not keep the process alive.

    Each turn is up to a fifth earlier than `period()`, never later: a third of a lease stays one. A failed turn is retried
    after 1, 2, 4 ... s with full jitter, at most after `retry_max`.
    """

    def __init__(
        self,
        name: str,
        run_once: Callable[[Cancel], object],
        period: Callable[[], float],
        retry_max: float,
        on_failure: Callable[[Exception, float], None],
        *,
        starts_now: bool,
    ) -> None:
        self._run_once = run_once
        self._period = period
        self._retry_max = retry_max
        self._on_failure = on_failure
        self._starts_now = starts_now
        self._cancel = Cancel()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"smart-router {name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """The next turn runs now, or right after the current one."""
        self._wake.set()

    def stop(self) -> None:
        """Cancels the next turn and aborts a running one. Does not wait for it."""
        self._cancel.cancel()
        self._wake.set()

    def _run(self) -> None:
        failures = 0
        delay = 0.0 if self._starts_now else self._next_period()
        while True:
            self._wake.wait(delay)
            self._wake.clear()
            if self._cancel.cancelled:
                return
            try:
                self._run_once(self._cancel)
                failures = 0
                delay = self._next_period()
            except Exception as error:
                if self._cancel.cancelled:
                    return
                delay = full_jitter(_RETRY_BASE, self._retry_max, failures)
                failures += 1
                self._on_failure(error, delay)

    def _next_period(self) -> float:
        return self._period() * (0.8 + 0.2 * random.random())
