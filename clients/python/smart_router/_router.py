"""The synchronous client."""

from __future__ import annotations

import logging
import math
import threading
import time
from datetime import datetime
from types import TracebackType
from typing import Optional, Sequence, Tuple, Type, Union
from urllib.parse import quote

from . import _checks as checks
from ._breaker import Breaker
from ._call import Call, FallbackCall, Handles, HeldCall
from ._checks import FallbackUrl
from ._errors import CallNotFoundError, RouterUnavailableError, SmartRouterError, StaleFenceError, is_passing
from ._requester import Operation, Requester
from ._transport import Cancel, Endpoint
from ._wait import OnWaiting, allocate_with_wait
from ._wire import (
    Allocation,
    Body,
    DrainResult,
    ReleaseResult,
    Report,
    decode_allocation,
    decode_drain,
    decode_nothing,
    decode_release,
    decode_renewal,
    decode_report,
)

log = logging.getLogger("smart_router")

#: Proxies cut connections that are silent for a minute or two.
_MAX_SLICE = 50.0
_PAUSE_BETWEEN = 0.5
_PAUSE_OPEN = 2.0


class Router:
    """A client of the router. One per process: the breaker learns from all of its requests. Safe in threads.

    All times are seconds. With the defaults an operation takes at most 14.7 s (8.7 s if the router sends no Retry-After);
    Twilio drops a webhook after 15 s. A DNS lookup is not part of `timeout`.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: Optional[str] = None,
        timeout: float = 2.0,
        retries: int = 3,
        backoff: float = 0.1,
        backoff_max: float = 1.0,
        retry_after_max: float = 2.0,
        breaker_failures: int = 5,
        breaker_open: float = 30.0,
        breaker_trials: int = 3,
        fallback_url: Optional[FallbackUrl] = None,
    ) -> None:
        day = checks.MAX_DURATION
        scheme, host, port, prefix = checks.base_url(base_url)
        self._fallback_url = checks.fallback_url(fallback_url)
        self._requester = Requester(
            Endpoint(scheme, host, port, prefix, checks.api_key(api_key)),
            Breaker(
                checks.integer("breaker_failures", breaker_failures, 1, 1000),
                checks.number("breaker_open", breaker_open, 0.001, day),
                checks.integer("breaker_trials", breaker_trials, 1, 1000),
            ),
            timeout=checks.number("timeout", timeout, 0.001, day),
            retries=checks.integer("retries", retries, 0, 100),
            backoff=checks.number("backoff", backoff, 0, day),
            backoff_max=checks.number("backoff_max", backoff_max, 0, day),
            retry_after_max=checks.number("retry_after_max", retry_after_max, 0, day),
        )
        self._handles = Handles()
        self._time_lock = threading.Lock()
        # The router's time in ms and when it was received and asked for, from the response to the last report.
        self._router_time: Optional[Tuple[int, float, float]] = None

    def __repr__(self) -> str:
        return f"<Router {self._requester.endpoint.url} breaker={self.breaker_state}>"

    @property
    def breaker_state(self) -> str:
        """closed, open or half_open; for health pages."""
        return self._requester.breaker.state

    def allocate(
        self,
        call_sid: str,
        *,
        merchant_id: Optional[str] = None,
        provider: Optional[str] = None,
        flow: Optional[str] = None,
        template: Optional[str] = None,
        wait: Optional[float] = None,
        on_waiting: Optional[OnWaiting] = None,
        cancel: Optional[Cancel] = None,
    ) -> Union[Call, FallbackCall]:
        """Allocates a pod for a call; the same SID gets the same pod while the call lives, so repeating it is safe.

        With `wait` the call waits that many seconds for a pod if all are busy, and the router lets calls wait. `on_waiting`
        is called when it enters the queue, and about every 10 s. Raises StillWaitingError when the time is up.
        While the router is down it returns a call with the fallback URL, if one is configured.
        Raises NoPodsError (never retried, never a fallback), RouterUnavailableError, ApiError.
        """
        checks.call_sid(call_sid)
        fields: Body = {"merchant_id": merchant_id, "provider": provider, "flow": flow, "template": template}
        for name, value in fields.items():
            checks.optional_text(name, value)
        operation: Operation[Allocation] = Operation(
            f"allocate {call_sid}", "/allocate", lambda: {"call_sid": call_sid, **fields}, decode_allocation
        )
        try:
            if wait is None:
                return Call(self, call_sid, self._requester.send(operation, cancel))
            checks.number("wait", wait, 0, checks.MAX_DURATION)
            request = {"call_sid": call_sid, **fields}
            allocation = allocate_with_wait(self._requester, request, wait, on_waiting, cancel)
            return Call(self, call_sid, allocation)
        except RouterUnavailableError as error:
            url = self._fallback(call_sid)
            if url is None:
                raise
            log.warning("router unavailable; using the fallback URL: %s", error)
            return FallbackCall(self, call_sid, url, error)

    def call(self, call_sid: str, fence: Optional[int] = None, *, pod_name: Optional[str] = None) -> HeldCall:
        """A handle for a call that was allocated elsewhere; `with` renews it and releases it at the end.

        Without a fence, renew and release act on any claim of the call, until a report brings the fence.
        """
        checks.call_sid(call_sid)
        checks.fence(fence)
        if pod_name is not None:
            checks.pod(pod_name)
        call = HeldCall(self, call_sid, pod_name=pod_name, fence=fence)
        call._track()
        return call

    def release(
        self,
        call_sid: str,
        *,
        fence: Optional[int] = None,
        reason: Optional[str] = None,
        cancel: Optional[Cancel] = None,
    ) -> ReleaseResult:
        """Ends a call by its SID. A call that has already ended is not an error: see ReleaseResult.

        `reason="connect_failed"` if the caller could not connect to the pod: three such calls in a row set the pod back.
        """
        checks.call_sid(call_sid)
        checks.fence(fence)
        checks.optional_text("reason", reason)
        body: Body = {"call_sid": call_sid, "fence": fence, "reason": reason}
        operation: Operation[ReleaseResult] = Operation(
            f"release {call_sid}", "/release", lambda: body, decode_release
        )
        try:
            return self._requester.send(operation, cancel)
        except CallNotFoundError:
            return ReleaseResult(False, "already_ended")
        except StaleFenceError:
            return ReleaseResult(False, "not_ours")

    def renew(
        self, call_sid: str, *, fence: Optional[int] = None, cancel: Optional[Cancel] = None
    ) -> datetime:
        """Renews a call's lease once and returns its end.

        Raises CallNotFoundError, StaleFenceError, RouterUnavailableError.
        """
        return self._renew(call_sid, fence, cancel)

    def report(
        self,
        pod: str,
        calls: Sequence[str],
        *,
        uid: Optional[str] = None,
        tier: Optional[str] = None,
        merchant: Optional[str] = None,
        interval: Optional[float] = None,
        cancel: Optional[Cancel] = None,
    ) -> Report:
        """Reports once which calls a pod serves; handles of those calls learn their fences and losses from it."""
        return self._report(pod, calls, uid, tier, merchant, interval, cancel)

    def drain(
        self,
        pod: str,
        *,
        wait: float = 0.0,
        uid: Optional[str] = None,
        cancel: Optional[Cancel] = None,
    ) -> DrainResult:
        """Drains a pod: no new calls, running calls continue.

        With `wait` it returns when the last call has ended, at most after that many seconds, over several requests. If
        the router is down, it fails only when the time is up: an agent that stops waiting earlier would cut its calls.
        Raises PodReplacedError, RouterUnavailableError, ApiError.
        """
        checks.pod(pod)
        checks.number("wait", wait, 0, checks.MAX_DURATION)
        checks.optional_text("uid", uid)
        ends_at = time.monotonic() + wait

        def left() -> float:
            return 0.0 if wait == 0 else max(0.0, ends_at - time.monotonic())

        def slice_time() -> float:
            return min(left(), _MAX_SLICE)

        def body() -> Body:
            milliseconds = math.ceil(slice_time() * 1000)
            return {"pod_name": pod, "uid": uid, "wait": f"{milliseconds}ms" if milliseconds else None}

        operation: Operation[DrainResult] = Operation(
            f"drain {pod}", "/drain", body, decode_drain, extra_time=slice_time
        )
        while True:
            pause = _PAUSE_BETWEEN
            try:
                answer = self._requester.send(operation, cancel)
                # Live calls before the time is up: the slice has ended, or that router is stopping. Ask again.
                if not answer.has_active_call or left() == 0:
                    return answer
            except SmartRouterError as error:
                if not is_passing(error) or left() == 0:
                    raise
                # A heartbeat may close the breaker earlier than it says.
                if self._requester.breaker.state == "open":
                    pause = _PAUSE_OPEN
                log.warning("drain failed; retrying in %.3f s: %s", pause, error)
            with self._requester.scope(operation.name, cancel) as scope:
                scope.sleep(min(pause, left()))

    def undrain(self, pod: str, *, uid: Optional[str] = None, cancel: Optional[Cancel] = None) -> None:
        """Ends a drain now."""
        checks.pod(pod)
        checks.optional_text("uid", uid)
        operation: Operation[None] = Operation(
            f"undrain {pod}", "/undrain", lambda: {"pod_name": pod, "uid": uid}, decode_nothing
        )
        self._requester.send(operation, cancel)

    def close(self) -> None:
        """Stops all background work and fails requests in flight with ClientClosedError.

        It does not release calls, because people are still talking.
        """
        self._requester.close()

    def __enter__(self) -> Router:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def _renew(
        self, call_sid: str, fence: Optional[int], cancel: Optional[Cancel], heartbeat: bool = False
    ) -> datetime:
        checks.call_sid(call_sid)
        checks.fence(fence)
        operation: Operation[datetime] = Operation(
            f"renew {call_sid}",
            "/renew",
            lambda: {"call_sid": call_sid, "fence": fence},
            decode_renewal,
            heartbeat=heartbeat,
        )
        return self._requester.send(operation, cancel)

    def _report(
        self,
        pod: str,
        calls: Sequence[str],
        uid: Optional[str],
        tier: Optional[str],
        merchant: Optional[str],
        interval: Optional[float],
        cancel: Optional[Cancel],
        heartbeat: bool = False,
    ) -> Report:
        checks.pod(pod)
        sids = list(checks.call_sids(calls))
        fields: Body = {"uid": uid, "tier": tier, "merchant": merchant}
        for name, value in fields.items():
            checks.optional_text(name, value)
        sent_at = time.monotonic()
        with self._time_lock:
            last = self._router_time
        # as_of keeps a delayed report from counting as the current state.
        as_of = None if last is None else math.floor(last[0] + (sent_at - last[1]) * 1000)
        fields.update(calls=sids, as_of=as_of, interval_ms=_sent_interval(interval))
        operation: Operation[Report] = Operation(
            f"report {pod}",
            f"/pod/{quote(pod, safe='')}/report",
            lambda: fields,
            decode_report,
            heartbeat=heartbeat,
        )
        report = self._requester.send(operation, cancel)
        with self._time_lock:
            # Of two concurrent reports the later one counts, in any order of their responses.
            if report.at_ms is not None and (self._router_time is None or sent_at >= self._router_time[2]):
                self._router_time = (report.at_ms, time.monotonic(), sent_at)
        for call_sid, fence in report.fences.items():
            for call in self._handles.of(call_sid, pod):
                call._learn_fence(fence)
        for call_sid in report.conflicts:
            for call in self._handles.of(call_sid, pod):
                call._mark_lost("conflict")
        return report

    def _fallback(self, call_sid: str) -> Optional[str]:
        if not callable(self._fallback_url):
            return self._fallback_url
        try:
            url: object = self._fallback_url(call_sid)
        except Exception:
            # The caller gets the error of the router.
            log.exception("fallback_url failed: call=%s", call_sid)
            return None
        if isinstance(url, str) and url:
            return url
        log.error("fallback_url returned no URL: call=%s", call_sid)
        return None


def _sent_interval(interval: Optional[float]) -> Optional[int]:
    """The router accepts 100 ms to 10 min. A longer interval is not sent: the router would block the pod too early."""
    if interval is None:
        return None
    checks.number("interval", interval, 0.001, checks.MAX_DURATION)
    return None if interval > 600 else max(100, round(interval * 1000))
