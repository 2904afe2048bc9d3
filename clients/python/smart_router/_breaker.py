"""The circuit breaker: sends nothing to a router that is down, so that callers fail (or fall back) at once.

    closed     all attempts pass; `failures` failed attempts in a row open it
    open       no attempt passes for `open_time` seconds, except heartbeats; one that succeeds makes it half open at once
    half_open  `trials` attempts pass; when all have succeeded it closes, the first failure opens it again

It counts attempts, not operations. It ignores a response to an attempt from before the last change of state; a cancelled
trial frees its slot.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Optional

log = logging.getLogger("smart_router")


class Permit:
    """Permission for one attempt; exactly one of its methods must be called, once."""

    def __init__(self, breaker: Breaker, generation: int, takes_slot: bool) -> None:
        self._breaker = breaker
        self._generation = generation
        self._takes_slot = takes_slot

    def success(self) -> None:
        self._breaker._settle(self._generation, self._takes_slot, True)

    def failure(self) -> None:
        self._breaker._settle(self._generation, self._takes_slot, False)

    def cancel(self) -> None:
        self._breaker._settle(self._generation, self._takes_slot, None)


class Breaker:
    def __init__(self, failures: int, open_time: float, trials: int) -> None:
        self._max_failures = failures
        self._open_time = open_time
        self._trials = trials
        # Reentrant: a log handler may read the state.
        self._lock = threading.RLock()
        self._state = "closed"
        self._generation = 0
        self._failures = 0
        self._opened_at = 0.0
        self._trials_in_flight = 0
        self._trials_passed = 0

    @property
    def state(self) -> str:
        with self._lock:
            return self._current()

    def open_for(self) -> float:
        """Seconds until trials are allowed; 0 unless open."""
        with self._lock:
            return self._open_for()

    def acquire(self, kind: str = "request") -> Optional[Permit]:
        """A permit, or None if the router counts as down.

        A `long_poll` (drain with wait) takes no trial slot, because it would hold it for minutes and keep the breaker
        half open; its outcome still counts. A `heartbeat` (background renewal or report) always passes: it has its own
        backoff, and without it calls would lose their leases after an outage of a second.
        """
        with self._lock:
            state = self._current()
            if state == "open" and kind != "heartbeat":
                return None
            takes_slot = state == "half_open" and kind == "request"
            if takes_slot:
                if self._trials_in_flight + self._trials_passed >= self._trials:
                    return None
                self._trials_in_flight += 1
            return Permit(self, self._generation, takes_slot)

    def _settle(self, generation: int, takes_slot: bool, succeeded: Optional[bool]) -> None:
        with self._lock:
            if generation != self._generation:
                return
            if takes_slot:
                self._trials_in_flight -= 1
            if succeeded is None:
                return
            if not succeeded:
                # A failed heartbeat does not prolong the pause.
                if self._state == "open":
                    return
                self._failures += 1
                if self._state == "half_open" or self._failures >= self._max_failures:
                    self._enter("open")
                return
            self._failures = 0
            if self._state == "open":
                self._enter("half_open")
            if self._state == "half_open":
                self._trials_passed += 1
                if self._trials_passed >= self._trials:
                    self._enter("closed")

    def _current(self) -> str:
        if self._state == "open" and self._open_for() <= 0:
            self._enter("half_open")
        return self._state

    def _open_for(self) -> float:
        if self._state != "open":
            return 0.0
        return max(0.0, self._opened_at + self._open_time - time.monotonic())

    def _enter(self, state: str) -> None:
        log.warning("circuit breaker changed: from=%s to=%s", self._state, state)
        self._state = state
        self._generation += 1
        self._failures = 0
        self._trials_in_flight = 0
        self._trials_passed = 0
        if state == "open":
            self._opened_at = time.monotonic()
