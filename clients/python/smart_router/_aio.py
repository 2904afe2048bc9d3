"""The asynchronous client: the synchronous one in threads.

Each operation runs in a daemon thread of its own, not in the loop's executor: blocking code of the application must not
delay a release, and asyncio.run() waits for the executor's threads. Cancelling the task cancels the operation, except the
release at the end of `async with`: that one completes in its thread, so that a cancelled session still frees its pod.
"""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime
from types import TracebackType
from typing import Callable, Optional, Sequence, Tuple, Type, TypeVar, Union

from ._agent import Agent, OnLost
from ._call import Call, FallbackCall, HeldCall
from ._checks import FallbackUrl
from ._errors import CallLostError
from ._router import Router
from ._transport import Cancel
from ._wait import OnWaiting
from ._wire import DrainResult, ReleaseResult, Report, WaitingPlace

T = TypeVar("T")
Held = TypeVar("Held", bound="AsyncHeldCall")


async def _run(function: Callable[[Cancel], T]) -> T:
    """Runs `function` in a thread; cancelling the task cancels its operation."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    cancel = Cancel()

    def settle(deliver: Callable[[], None]) -> None:
        if not future.done():
            deliver()

    def work() -> None:
        try:
            result = function(cancel)
        except BaseException as error:
            problem = error
            _call_soon(loop, lambda: settle(lambda: future.set_exception(problem)))
        else:
            _call_soon(loop, lambda: settle(lambda: future.set_result(result)))

    threading.Thread(target=work, name="smart-router operation", daemon=True).start()
    try:
        return await future
    except asyncio.CancelledError:
        cancel.cancel()
        raise


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        # The loop has closed: nothing waits for this.
        pass


class AsyncHeldCall:
    """See HeldCall: `async with` renews in the background and releases the call at the end."""

    def __init__(self, call: Union[HeldCall, FallbackCall]) -> None:
        self._call = call
        self.call_sid = call.call_sid

    def __repr__(self) -> str:
        return f"<Async {self._call!r}>"

    @property
    def pod_name(self) -> Optional[str]:
        return self._call.pod_name

    @property
    def fence(self) -> Optional[int]:
        return self._call.fence

    @property
    def lease_expires_at(self) -> Optional[datetime]:
        return self._call.lease_expires_at

    @property
    def lost(self) -> Optional[CallLostError]:
        """Set once the router says that this call is no longer ours."""
        return self._call.lost

    async def wait_lost(self) -> CallLostError:
        """Waits until the call is lost; a call with the fallback URL never is."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[CallLostError] = loop.create_future()

        def lost(error: CallLostError) -> None:
            _call_soon(loop, lambda: None if future.done() else future.set_result(error))

        if isinstance(self._call, HeldCall):
            self._call.on_lost(lost)
        return await future

    def keep_alive(self, period: Optional[float] = None) -> None:
        self._call.keep_alive(period)

    def detach(self) -> None:
        self._call.detach()

    async def renew(self) -> Optional[datetime]:
        """Renews once, now; None for a call with the fallback URL."""
        if not isinstance(self._call, HeldCall):
            return None
        call = self._call
        return await _run(lambda cancel: call.renew(cancel=cancel))

    async def release(self, *, reason: Optional[str] = None) -> ReleaseResult:
        return await _run(lambda cancel: self._call.release(reason=reason, cancel=cancel))

    async def __aenter__(self: Held) -> Held:
        self._call.__enter__()
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await _run(lambda _: self._call.__exit__(None, None, None))


class AsyncCall(AsyncHeldCall):
    """The result of allocate: with a pod, or with the fallback URL (`fallback` is true, `pod_name` is None)."""

    def __init__(self, call: Union[Call, FallbackCall]) -> None:
        super().__init__(call)
        self.fallback: bool = call.fallback
        self.ws_url = call.ws_url
        self.source_pool = call.source_pool
        self.allocated_at = call.allocated_at
        self.was_existing: bool = call.was_existing
        self.waited: Optional[float] = call.waited


class AsyncRouter:
    """See Router: the same options and operations."""

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
        self._router = Router(
            base_url,
            api_key=api_key,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            backoff_max=backoff_max,
            retry_after_max=retry_after_max,
            breaker_failures=breaker_failures,
            breaker_open=breaker_open,
            breaker_trials=breaker_trials,
            fallback_url=fallback_url,
        )

    def __repr__(self) -> str:
        return f"<Async {self._router!r}>"

    @property
    def breaker_state(self) -> str:
        return self._router.breaker_state

    async def allocate(
        self,
        call_sid: str,
        *,
        merchant_id: Optional[str] = None,
        provider: Optional[str] = None,
        flow: Optional[str] = None,
        template: Optional[str] = None,
        wait: Optional[float] = None,
        on_waiting: Optional[OnWaiting] = None,
    ) -> AsyncCall:
        """See Router.allocate. If it is cancelled, the router may have taken a pod: release the SID.

        `on_waiting` is called in the event loop.
        """
        loop = asyncio.get_running_loop()

        def waiting(place: WaitingPlace) -> None:
            if on_waiting is not None:
                callback = on_waiting
                _call_soon(loop, lambda: callback(place))

        return AsyncCall(
            await _run(
                lambda cancel: self._router.allocate(
                    call_sid,
                    merchant_id=merchant_id,
                    provider=provider,
                    flow=flow,
                    template=template,
                    wait=wait,
                    on_waiting=waiting,
                    cancel=cancel,
                )
            )
        )

    def call(
        self, call_sid: str, fence: Optional[int] = None, *, pod_name: Optional[str] = None
    ) -> AsyncHeldCall:
        return AsyncHeldCall(self._router.call(call_sid, fence, pod_name=pod_name))

    async def release(
        self, call_sid: str, *, fence: Optional[int] = None, reason: Optional[str] = None
    ) -> ReleaseResult:
        return await _run(
            lambda cancel: self._router.release(call_sid, fence=fence, reason=reason, cancel=cancel)
        )

    async def renew(self, call_sid: str, *, fence: Optional[int] = None) -> datetime:
        return await _run(lambda cancel: self._router.renew(call_sid, fence=fence, cancel=cancel))

    async def report(
        self,
        pod: str,
        calls: Sequence[str],
        *,
        uid: Optional[str] = None,
        tier: Optional[str] = None,
        merchant: Optional[str] = None,
        interval: Optional[float] = None,
    ) -> Report:
        return await _run(
            lambda cancel: self._router.report(
                pod, calls, uid=uid, tier=tier, merchant=merchant, interval=interval, cancel=cancel
            )
        )

    async def drain(self, pod: str, *, wait: float = 0.0, uid: Optional[str] = None) -> DrainResult:
        return await _run(lambda cancel: self._router.drain(pod, wait=wait, uid=uid, cancel=cancel))

    async def undrain(self, pod: str, *, uid: Optional[str] = None) -> None:
        await _run(lambda cancel: self._router.undrain(pod, uid=uid, cancel=cancel))

    async def close(self) -> None:
        self._router.close()

    async def __aenter__(self) -> AsyncRouter:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.close()


class AsyncAgent:
    """See Agent. `on_lost` is called in the event loop in which the agent was created."""

    def __init__(
        self,
        router: AsyncRouter,
        pod_name: str,
        *,
        uid: Optional[str] = None,
        tier: Optional[str] = None,
        merchant: Optional[str] = None,
        interval: float = 10.0,
        on_lost: Optional[OnLost] = None,
    ) -> None:
        self.pod_name = pod_name
        self._agent = Agent(
            router._router,
            pod_name,
            uid=uid,
            tier=tier,
            merchant=merchant,
            interval=interval,
            on_lost=None if on_lost is None else _in_loop(on_lost),
        )

    def __repr__(self) -> str:
        return f"<Async {self._agent!r}>"

    @property
    def calls(self) -> Tuple[str, ...]:
        return self._agent.calls

    def call(self, call_sid: str, fence: Optional[int] = None) -> AsyncHeldCall:
        return AsyncHeldCall(self._agent.call(call_sid, fence))

    async def report(self) -> Report:
        return await _run(lambda cancel: self._agent.report(cancel=cancel))

    async def drain(self, *, wait: float = 0.0) -> DrainResult:
        return await _run(lambda cancel: self._agent.drain(wait=wait, cancel=cancel))

    def drain_on_sigterm(self, wait: float = 3600.0) -> None:
        self._agent.drain_on_sigterm(wait)

    async def close(self) -> None:
        self._agent.close()

    async def __aenter__(self) -> AsyncAgent:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.close()


def _in_loop(on_lost: OnLost) -> OnLost:
    loop = asyncio.get_running_loop()
    return lambda call_sid, error: _call_soon(loop, lambda: on_lost(call_sid, error))
