"""A voice agent: the calls that a pod serves, its reports, and its drain."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Callable, Dict, List, Optional, Tuple, Type

from . import _checks as checks
from ._call import HeldCall
from ._errors import CallLostError, ClientClosedError, InvalidArgumentError, SmartRouterError
from ._loop import Loop
from ._router import Router
from ._transport import Cancel
from ._wire import DrainResult, ReleaseResult, Report

log = logging.getLogger("smart_router")

OnLost = Callable[[str, CallLostError], object]


class AgentCall(HeldCall):
    """A call that an agent serves. The agent's reports renew it; release(), or the end of `with`, ends it."""

    pod_name: str

    def __init__(self, agent: Agent, call_sid: str, fence: Optional[int]) -> None:
        super().__init__(agent._router, call_sid, pod_name=agent.pod_name, fence=fence)
        self._agent = agent

    def release(self, *, reason: Optional[str] = None, cancel: Optional[Cancel] = None) -> ReleaseResult:
        # The reports leave it out first: a report of a released call would be a conflict.
        self._end("releasing")
        if self.call_sid in self._agent.calls:
            return ReleaseResult(False, "still_served")
        return super().release(reason=reason, cancel=cancel)

    def __enter__(self) -> AgentCall:
        return self

    def _end(self, state: str) -> None:
        super()._end(state)
        self._agent._remove(self)


class Agent:
    """Reports in the background which calls a pod serves, while it is open.

    It reports at once, when a call arrives, when the router's store has failed over, and every `interval` seconds; a failed
    report is retried after 1, 2, 4 ... s, up to the interval. After three intervals (at least 15 s) without a report the pod gets no new calls. `on_lost` is
    called in the thread of the reports, so it must return soon, with the SID of a call that the agent must drop: another pod
    owns it, it has ended, or the pod is full.
    """

    def __init__(
        self,
        router: Router,
        pod_name: str,
        *,
        uid: Optional[str] = None,
        tier: Optional[str] = None,
        merchant: Optional[str] = None,
        interval: float = 10.0,
        on_lost: Optional[OnLost] = None,
    ) -> None:
        self.pod_name = checks.pod(pod_name)
        for name, value in (("uid", uid), ("tier", tier), ("merchant", merchant)):
            checks.optional_text(name, value)
        checks.number("interval", interval, 0.001, checks.MAX_DURATION)
        self._router = router
        self._uid = uid
        self._tier = tier
        self._merchant = merchant
        self._interval = interval
        self._on_lost = on_lost
        self._closed = False
        self._lock = threading.Lock()
        # A call may have two connections for a moment, when a stream reconnects.
        self._calls: Dict[str, List[AgentCall]] = {}
        # Reentrant: on_lost may report.
        self._report_lock = threading.RLock()
        self._forget_close = router._requester.on_close(f"report {pod_name}", self.close)
        self._loop = Loop(
            f"report {pod_name}",
            self._send_report,
            lambda: interval,
            interval,
            lambda error, delay: log.warning("report failed; retrying in %.3f s: %s", delay, error),
            starts_now=True,
        )
        self._forget_generation = router._requester.on_generation(self._loop.wake)

    def __repr__(self) -> str:
        return f"<Agent {self.pod_name} calls={len(self._calls)}>"

    @property
    def calls(self) -> Tuple[str, ...]:
        """The SIDs that the agent serves now."""
        with self._lock:
            return tuple(self._calls)

    def call(self, call_sid: str, fence: Optional[int] = None) -> AgentCall:
        """The call has arrived: reports name it from now on. Use it in `with`, or call release() at its end.

        Without a fence the first report brings it.
        """
        checks.call_sid(call_sid)
        checks.fence(fence)
        if self._closed:
            raise ClientClosedError(f"call {call_sid}")
        call = AgentCall(self, call_sid, fence)
        call._track()
        if self._on_lost is not None:
            on_lost = self._on_lost
            call.on_lost(lambda error: on_lost(call_sid, error))
        with self._lock:
            self._calls.setdefault(call_sid, []).append(call)
        self._loop.wake()
        return call

    def report(self, *, cancel: Optional[Cancel] = None) -> Report:
        """Reports now, after any report in flight, so that none overtakes another."""
        return self._send_report(cancel)

    def drain(self, *, wait: float = 0.0, cancel: Optional[Cancel] = None) -> DrainResult:
        """Drains the pod: no new calls, running calls continue.

        With `wait` it returns when the last call has ended, at the router and here, at most after that many seconds. If
        the router refuses the drain, the error is raised after the last call here has ended.
        """
        checks.number("wait", wait, 0, checks.MAX_DURATION)
        ends_at = time.monotonic() + wait
        try:
            return self._router.drain(self.pod_name, wait=wait, uid=self._uid, cancel=cancel)
        finally:
            with self._router._requester.scope(f"drain {self.pod_name}", cancel) as scope:
                while self.calls and time.monotonic() < ends_at:
                    scope.sleep(0.05)

    def drain_on_sigterm(self, wait: float = 3600.0) -> None:
        """Drains on SIGTERM; after the last call, or after `wait` seconds, the process gets the signal.

        "Gets the signal" means: the handler that was installed before runs, or the process ends. A second SIGTERM is
        delivered at once. Call it in the main thread, after the server has installed its own handler. The grace period
        of the pod (terminationGracePeriodSeconds) must be longer than `wait`.
        """
        checks.number("wait", wait, 0, checks.MAX_DURATION)
        main_thread = threading.get_ident()
        if threading.main_thread().ident != main_thread:
            raise InvalidArgumentError("drain_on_sigterm must be called in the main thread.")
        previous = signal.getsignal(signal.SIGTERM)
        if (getattr(previous, "__module__", None) or "").startswith("asyncio"):
            # The loop reads signals from a pipe: its handler would run at once, whatever is installed here.
            raise InvalidArgumentError(
                "The event loop has a SIGTERM handler (add_signal_handler): call agent.drain() in it instead."
            )
        started = False

        def drain_then_signal() -> None:
            try:
                self.drain(wait=wait)
            except SmartRouterError as error:
                log.warning("drain on SIGTERM failed: %s", error)
            finally:
                # To the main thread: another one would take the signal and not wake it, and only it runs handlers.
                signal.pthread_kill(main_thread, signal.SIGTERM)

        def handle(signum: int, frame: Optional[FrameType]) -> None:
            nonlocal started
            if not started:
                started = True
                threading.Thread(target=drain_then_signal, name="smart-router drain", daemon=True).start()
                return
            signal.signal(signal.SIGTERM, signal.SIG_DFL if previous is None else previous)
            if callable(previous):
                previous(signum, frame)
            else:
                os.kill(os.getpid(), signum)

        signal.signal(signal.SIGTERM, handle)

    def close(self) -> None:
        """Ends the reports. It does not release calls: people may still be talking."""
        self._closed = True
        self._loop.stop()
        self._forget_close()
        self._forget_generation()

    def __enter__(self) -> Agent:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def _send_report(self, cancel: Optional[Cancel]) -> Report:
        with self._report_lock:
            return self._router._report(
                self.pod_name,
                self.calls,
                self._uid,
                self._tier,
                self._merchant,
                self._interval,
                cancel,
                heartbeat=True,
            )

    def _remove(self, call: AgentCall) -> None:
        with self._lock:
            calls = self._calls.get(call.call_sid, [])
            if call in calls:
                calls.remove(call)
            if not calls:
                self._calls.pop(call.call_sid, None)
