"""Adds retries, breaker and closing to one request.

Every operation of the router is idempotent (allocate by its SID, release and renew by their fence), so that a request whose
response was lost may be sent again.
"""

from __future__ import annotations

import logging
import random
import threading
from contextlib import contextmanager
from typing import Callable, Generic, Iterator, Optional, Set, TypeVar

from ._breaker import Breaker
from ._errors import (
    ApiError,
    ClientClosedError,
    RouterUnavailableError,
    SmartRouterError,
    is_down,
    is_passing,
)
from ._transport import Attempt, Cancel, Endpoint, Scope, send_once
from ._wire import Body

T = TypeVar("T")

log = logging.getLogger("smart_router")


def full_jitter(base: float, longest: float, failures: int) -> float:
    """Uniform in [0, min(longest, base * 2^failures)), so that clients do not retry in step."""
    return random.random() * min(longest, base * 2.0 ** min(failures, 30))


class Operation(Generic[T]):
    """One operation of the API, with its retries."""

    def __init__(
        self,
        name: str,
        path: str,
        body: Callable[[], Body],
        decode: Callable[[Body], T],
        *,
        extra_time: Callable[[], float] = lambda: 0.0,
        heartbeat: bool = False,
        retries: Optional[int] = None,
    ) -> None:
        #: For messages: `allocate CA123`.
        self.name = name
        self.path = path
        #: Called before each attempt, because the rest of a wait shrinks.
        self.body = body
        self.decode = decode
        #: How long the router may delay its response on purpose; called before each attempt.
        self.extra_time = extra_time
        #: Sent by a background loop, which retries on its own: no retries here, and not stopped by the breaker.
        self.heartbeat = heartbeat
        #: Instead of those of the client.
        self.retries = 0 if heartbeat else retries


class Requester:
    def __init__(
        self,
        endpoint: Endpoint,
        breaker: Breaker,
        *,
        timeout: float,
        retries: int,
        backoff: float,
        backoff_max: float,
        retry_after_max: float,
    ) -> None:
        self.endpoint = endpoint
        self.breaker = breaker
        self._timeout = timeout
        self._retries = retries
        self._backoff = backoff
        self._backoff_max = backoff_max
        self._retry_after_max = retry_after_max
        self._lock = threading.Lock()
        self._closed = False
        self._stops: Set[Callable[[], None]] = set()
        self._generation: Optional[int] = None
        self._generation_listeners: Set[Callable[[], None]] = set()

    def assert_open(self, operation: str) -> None:
        if self._closed:
            raise ClientClosedError(operation)

    def on_close(self, operation: str, stop: Callable[[], None]) -> Callable[[], None]:
        """Runs `stop` when the client closes; the returned function cancels that."""
        with self._lock:
            self.assert_open(operation)
            self._stops.add(stop)
        return lambda: self._forget(stop)

    def _forget(self, stop: Callable[[], None]) -> None:
        with self._lock:
            self._stops.discard(stop)

    def on_generation(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Runs `listener` when a response has a higher generation than before; the returned function cancels that.

        The router's store has failed over then, and may have lost calls. Only a higher one: for a moment two routers may use
        different masters.
        """
        with self._lock:
            self._generation_listeners.add(listener)

        def forget() -> None:
            with self._lock:
                self._generation_listeners.discard(listener)

        return forget

    def _learn_generation(self, generation: object) -> None:
        if not isinstance(generation, int) or isinstance(generation, bool):
            return
        with self._lock:
            known = self._generation
            if known is not None and generation <= known:
                return
            self._generation = generation
            listeners = [] if known is None else list(self._generation_listeners)
        for listener in listeners:
            listener()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            stops = list(self._stops)
            self._stops.clear()
        for stop in stops:
            stop()

    @contextmanager
    def scope(self, operation: str, cancel: Optional[Cancel]) -> Iterator[Scope]:
        """Ends with the caller's Cancel, or when the client closes."""
        scope = Scope(operation, cancel)
        try:
            forget = self.on_close(operation, lambda: scope.abort(ClientClosedError(operation)))
            try:
                yield scope
            finally:
                forget()
        finally:
            scope.forget()

    def send(self, operation: Operation[T], cancel: Optional[Cancel] = None) -> T:
        with self.scope(operation.name, cancel) as scope:
            return self._send_within(operation, scope)

    def _send_within(self, operation: Operation[T], scope: Scope) -> T:
        def decode(body: Body) -> T:
            decoded = operation.decode(body)
            self._learn_generation(body.get("generation"))
            return decoded

        retries = self._retries if operation.retries is None else operation.retries
        attempt = 0
        last: Optional[SmartRouterError] = None
        while True:
            scope.check()
            attempt += 1
            extra_time = operation.extra_time()
            kind = "heartbeat" if operation.heartbeat else "long_poll" if extra_time > 0 else "request"
            permit = self.breaker.acquire(kind)
            if permit is None:
                raise self._breaker_open(operation.name, attempt - 1, last)
            try:
                result = send_once(
                    self.endpoint,
                    Attempt(
                        operation.name,
                        operation.path,
                        operation.body(),
                        self._timeout + extra_time,
                        attempt,
                        decode,
                    ),
                    scope,
                )
            except SmartRouterError as error:
                try:
                    scope.check()
                except SmartRouterError:
                    permit.cancel()
                    raise
                if is_down(error):
                    permit.failure()
                else:
                    permit.success()
                if not is_passing(error) or attempt > retries:
                    raise
                if self.breaker.state == "open":
                    raise self._breaker_open(operation.name, attempt, error) from error
                last = error
                jitter = full_jitter(self._backoff, self._backoff_max, attempt - 1)
                delay = min(_retry_after(error), self._retry_after_max) + jitter
                log.info("request failed; retrying in %.3f s: %s", delay, error)
                scope.sleep(delay)
            except BaseException:
                # KeyboardInterrupt, or a bug: the attempt says nothing about the router.
                permit.cancel()
                raise
            else:
                permit.success()
                return result

    def _breaker_open(
        self, operation: str, attempts: int, cause: Optional[SmartRouterError]
    ) -> RouterUnavailableError:
        wait = self.breaker.open_for()
        following = (
            f"The next attempt is in {wait:.1f} s." if wait > 0 else "Other requests are trying it now."
        )
        why = "" if cause is None else f" Last failure: {cause}"
        text = (
            f"the router at {self.endpoint.url} failed repeatedly; the circuit breaker is open. "
            f"{following}{why}"
        )
        return RouterUnavailableError(operation, "breaker_open", text, attempts)


def _retry_after(error: SmartRouterError) -> float:
    if isinstance(error, (ApiError, RouterUnavailableError)):
        return error.retry_after or 0.0
    return 0.0
