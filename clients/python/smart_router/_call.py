"""Calls that this process holds."""

from __future__ import annotations

import logging
import threading
from datetime import datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Callable, Dict, List, Literal, Optional, Set, Type, TypeVar

from . import _checks as checks
from ._errors import CallLostError, CallNotFoundError, RouterUnavailableError, SmartRouterError, StaleFenceError
from ._loop import Loop
from ._transport import Cancel
from ._wire import Allocation, ReleaseResult

if TYPE_CHECKING:
    from ._router import Router

log = logging.getLogger("smart_router")

#: A third of the default lease (15 min): limits the effect of a wrong client clock.
_MAX_RENEW = 300.0
_MIN_RENEW = 1.0
#: Well inside any sensible lease.
_RETRY_MAX = 30.0

Held = TypeVar("Held", bound="HeldCall")


class Handles:
    """The open handles by SID, so that the response to a report reaches them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_sid: Dict[str, Set[HeldCall]] = {}

    def add(self, call: HeldCall) -> None:
        with self._lock:
            self._by_sid.setdefault(call.call_sid, set()).add(call)

    def remove(self, call: HeldCall) -> None:
        with self._lock:
            calls = self._by_sid.get(call.call_sid, set())
            calls.discard(call)
            if not calls:
                self._by_sid.pop(call.call_sid, None)

    def of(self, call_sid: str, pod: str) -> List[HeldCall]:
        """Handles of this call that belong to `pod`, or that were attached without naming one."""
        with self._lock:
            calls = self._by_sid.get(call_sid, set())
            return [call for call in calls if call.pod_name is None or call.pod_name == pod]


class HeldCall:
    """A call that this process holds: it renews the lease and finally releases the call.

        live -> releasing -> released      release(); a failed release may be repeated
        live -> lost                       the router says that the call has ended or is not ours
        live -> detached                   detach(), or the client closed

    As a context manager it renews in the background and releases the call at the end. A release that fails there is
    logged, not raised: then the lease frees the pod.
    """

    pod_name: Optional[str]

    def __init__(
        self,
        router: Router,
        call_sid: str,
        *,
        pod_name: Optional[str] = None,
        fence: Optional[int] = None,
        lease_expires_at: Optional[datetime] = None,
        lease: Optional[float] = None,
    ) -> None:
        self.call_sid = call_sid
        self.pod_name = pod_name
        self._router = router
        self._fence = fence
        self._lease_expires_at = lease_expires_at
        # The length of the lease in seconds by the store's clock, if known.
        self._lease = lease
        self._lock = threading.RLock()
        self._state = "live"
        self._loop: Optional[Loop] = None
        self._forget_close: Callable[[], None] = lambda: None
        self._lost: Optional[CallLostError] = None
        self._lost_listeners: List[Callable[[CallLostError], object]] = []
        self._release_lock = threading.Lock()
        self._released: Optional[ReleaseResult] = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.call_sid} pod={self.pod_name} {self._state}>"

    @property
    def fence(self) -> Optional[int]:
        """Identifies our claim; None until known (a call attached without one, before its first report)."""
        return self._fence

    @property
    def lease_expires_at(self) -> Optional[datetime]:
        """As of the last response; None until the first renew of an attached call."""
        return self._lease_expires_at

    @property
    def lost(self) -> Optional[CallLostError]:
        """Set once the router says that this call is no longer ours."""
        return self._lost

    def on_lost(self, listener: Callable[[CallLostError], object]) -> None:
        """Calls `listener` in a background thread when the call is lost, or now if it is."""
        with self._lock:
            if self._lost is None:
                self._lost_listeners.append(listener)
                return
        listener(self._lost)

    def wait_lost(self, timeout: Optional[float] = None) -> Optional[CallLostError]:
        """Waits until the call is lost, at most `timeout` seconds."""
        event = threading.Event()
        self.on_lost(lambda _: event.set())
        event.wait(timeout)
        return self._lost

    def keep_alive(self, period: Optional[float] = None) -> None:
        """Renews in the background, at a third of the lease, until the call is released, detached or lost, or the
        client closes. Other failures are retried. Calling it again does nothing. It does not keep the process alive.
        An attached call is renewed at once, to learn its lease.
        """
        if period is not None:
            checks.number("period", period, 0.001, checks.MAX_DURATION)
        with self._lock:
            if self._loop is not None or self._state != "live":
                return
            self._track()
            self._loop = Loop(
                f"renew {self.call_sid}",
                lambda cancel: self._renew(cancel, heartbeat=True),
                lambda: self._third_of_lease() if period is None else period,
                _RETRY_MAX if period is None else min(_RETRY_MAX, period),
                lambda error, delay: log.warning("renew failed; retrying in %.3f s: %s", delay, error),
                starts_now=self._lease_expires_at is None,
            )

    def renew(self, *, cancel: Optional[Cancel] = None) -> datetime:
        """Renews once, now, with retries; returns the end of the lease.

        Raises CallNotFoundError, StaleFenceError (then the call is lost), RouterUnavailableError.
        """
        return self._renew(cancel)

    def release(self, *, reason: Optional[str] = None, cancel: Optional[Cancel] = None) -> ReleaseResult:
        """Stops renewing and ends the call.

        A call that has already ended, or is no longer ours, is a result and not an error. May be repeated after a
        failure; otherwise the lease ends the call. Raises RouterUnavailableError once the retries are used up.
        """
        self._end("releasing")
        with self._release_lock:
            if self._released is None:
                if self._lost is not None and self._fence is None:
                    # Without a fence a release ends any claim of this call, also that of another pod.
                    ended = self._lost.reason == "ended"
                    return ReleaseResult(False, "already_ended" if ended else "not_ours")
                self._released = self._router.release(
                    self.call_sid, fence=self._fence, reason=reason, cancel=cancel
                )
            return self._released

    def detach(self) -> None:
        """Stops renewing without ending the call: another process holds it now."""
        self._end("detached")

    def __enter__(self: Held) -> Held:
        self.keep_alive()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._release_quietly()

    def _release_quietly(self) -> None:
        if self._state == "detached":
            return
        try:
            self.release()
        except SmartRouterError as problem:
            log.warning("release failed; the lease or the next reports end the call: %s", problem)

    def _learn_fence(self, fence: int) -> None:
        """Fences only grow: a report overtaken by a later one changes nothing."""
        with self._lock:
            if self._fence is None or fence > self._fence:
                self._fence = fence

    def _mark_lost(self, reason: str) -> None:
        with self._lock:
            if self._state != "live":
                return
            self._end("lost")
            lost = self._lost = CallLostError(self.call_sid, reason)
            listeners = self._lost_listeners
            self._lost_listeners = []
        log.warning("call lost: %s", lost)
        for listener in listeners:
            try:
                listener(lost)
            except Exception:
                log.exception("on_lost failed: call=%s", self.call_sid)

    def _renew(self, cancel: Optional[Cancel], heartbeat: bool = False) -> datetime:
        fence = self._fence
        try:
            self._lease_expires_at = self._router._renew(self.call_sid, fence, cancel, heartbeat)
            return self._lease_expires_at
        except (CallNotFoundError, StaleFenceError) as error:
            # If a report has brought a new fence, this response is about the old claim.
            if self._fence == fence:
                self._mark_lost("ended" if isinstance(error, CallNotFoundError) else "stale_fence")
            raise

    def _third_of_lease(self) -> float:
        lease = self._lease
        if lease is None:
            end = self._lease_expires_at
            lease = 0.0 if end is None else (end - datetime.now(timezone.utc)).total_seconds()
        return min(_MAX_RENEW, max(_MIN_RENEW, lease / 3))

    def _track(self) -> None:
        """Connects this handle to reports and to the end of the client, until it ends."""
        with self._lock:
            self._forget_close()
            self._forget_close = self._router._requester.on_close(f"hold {self.call_sid}", self.detach)
            self._router._handles.add(self)

    def _end(self, state: str) -> None:
        with self._lock:
            if self._state == "live" or state == "releasing":
                self._state = state
            loop = self._loop
            self._forget_close()
            self._router._handles.remove(self)
        if loop is not None:
            loop.stop()


class Call(HeldCall):
    """A call with a pod: the result of allocate."""

    fallback: Literal[False] = False
    pod_name: str

    def __init__(self, router: Router, call_sid: str, allocation: Allocation) -> None:
        # Both times are the store's, so their difference is exact. An existing call may have been renewed since.
        lease = (allocation.lease_expires_at - allocation.allocated_at).total_seconds()
        super().__init__(
            router,
            call_sid,
            pod_name=allocation.pod_name,
            fence=allocation.fence,
            lease_expires_at=allocation.lease_expires_at,
            lease=None if allocation.was_existing else lease,
        )
        self.ws_url = allocation.ws_url
        self.source_pool = allocation.source_pool
        self.allocated_at = allocation.allocated_at
        self.was_existing = allocation.was_existing
        #: Seconds that the call waited for its pod; None if it did not wait.
        self.waited = allocation.waited

    @property
    def fence(self) -> int:
        """Identifies our claim."""
        assert self._fence is not None
        return self._fence


class FallbackCall:
    """A call that goes to the fallback URL because the router is down.

    It has the shape of a call with a pod, but no lease: keep_alive does nothing and it is never lost.
    """

    fallback: Literal[True] = True
    pod_name: None = None
    source_pool: None = None
    allocated_at: None = None
    lease_expires_at: None = None
    fence: None = None
    was_existing: Literal[False] = False
    waited: None = None
    lost: None = None

    def __init__(self, router: Router, call_sid: str, ws_url: str, cause: RouterUnavailableError) -> None:
        self.call_sid = call_sid
        self.ws_url = ws_url
        #: Why there is no pod.
        self.cause = cause
        self._router = router

    def __repr__(self) -> str:
        return f"<FallbackCall {self.call_sid}>"

    def keep_alive(self, period: Optional[float] = None) -> None:
        """Does nothing: there is no lease."""

    def detach(self) -> None:
        """Does nothing: there is no lease."""

    def release(self, *, reason: Optional[str] = None, cancel: Optional[Cancel] = None) -> ReleaseResult:
        """Releases the SID if a request was sent: the router may have allocated a pod, and only its response was lost.

        There is no fence. Best effort: if the router is still down, the lease frees the pod.
        """
        nothing = ReleaseResult(False, "fallback")
        if self.cause.attempts == 0:
            return nothing
        try:
            result = self._router.release(self.call_sid, reason=reason, cancel=cancel)
        except SmartRouterError:
            return nothing
        return result if result.released else nothing

    def __enter__(self) -> FallbackCall:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.release()
