"""Allocate with `wait`: polls until the call has a pod."""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import Callable, Optional, Union

from ._errors import OperationCancelledError, SmartRouterError, StillWaitingError, is_passing
from ._requester import Operation, Requester, full_jitter
from ._transport import Cancel
from ._wire import Allocation, Body, WaitingPlace, decode_allocation_or_place, decode_release

log = logging.getLogger("smart_router")

OnWaiting = Callable[[WaitingPlace], object]

#: With the deadline of an attempt (2 s) it stays below the 15 s after which a call that is not asked for loses its place.
_MAX_POLL = 10.0
_PAUSE_BETWEEN = 0.5


def allocate_with_wait(
    requester: Requester,
    request: Body,
    wait: float,
    on_waiting: Optional[OnWaiting],
    cancel: Optional[Cancel],
) -> Allocation:
    """The first request returns at once, with a pod or a place in the queue; then polls follow until the call has a pod.

    After a failed poll it asks at once, as any allocate does, and keeps its place. If that fails too it repeats it until the
    time is up or the breaker opens.
    """
    call_sid = request["call_sid"]
    name = f"allocate {call_sid}"
    ends_at = time.monotonic() + wait

    def left() -> float:
        return max(0.0, ends_at - time.monotonic())

    def ask(poll: float) -> Union[Allocation, WaitingPlace]:
        body = {**request, "wait": f"{math.ceil(poll * 1000)}ms"}
        retries = 0 if poll > 0 else None
        operation: Operation[Union[Allocation, WaitingPlace]] = Operation(
            name,
            "/allocate",
            lambda: body,
            decode_allocation_or_place,
            extra_time=lambda: poll,
            retries=retries,
        )
        return requester.send(operation, cancel)

    is_queued = False
    early_answers = 0
    poll = 0.0
    try:
        while True:
            pause = 0.0
            asked_at = time.monotonic()
            try:
                answer = ask(poll)
                if isinstance(answer, Allocation):
                    return answer
                is_queued = True
                _call_back(on_waiting, answer)
                if left() == 0:
                    raise StillWaitingError(name, answer)
                # The router answers a poll early if it is stopping or has too many of them.
                if time.monotonic() - asked_at < poll / 2:
                    pause = full_jitter(_PAUSE_BETWEEN, answer.retry_after, early_answers)
                    early_answers += 1
                poll = min(left(), _MAX_POLL)
            except SmartRouterError as error:
                may_ask_again = is_queued and left() > 0 and requester.breaker.state != "open"
                if not may_ask_again or not is_passing(error):
                    raise
                pause = _PAUSE_BETWEEN if poll == 0 else 0.0
                poll = 0.0
                log.info("poll failed; asking again in %.3f s: %s", pause, error)
            with requester.scope(name, cancel) as scope:
                scope.sleep(min(pause, left()))
    except OperationCancelledError:
        if is_queued:
            _leave_queue(requester, call_sid)
        raise


def _call_back(on_waiting: Optional[OnWaiting], place: WaitingPlace) -> None:
    try:
        if on_waiting is not None:
            on_waiting(place)
    except Exception:
        log.exception("on_waiting failed")


def _leave_queue(requester: Requester, call_sid: str) -> None:
    """Once, in the background: otherwise the call leaves the queue when the router misses its polls.

    Without a fence, because the call may have got a pod at this moment; a retry would be late and could end a later
    allocation of the SID.
    """
    operation = Operation(
        f"release {call_sid}", "/release", lambda: {"call_sid": call_sid}, decode_release, retries=0
    )

    def leave() -> None:
        try:
            requester.send(operation)
        except SmartRouterError as error:
            log.info("release of a cancelled wait failed: %s", error)

    threading.Thread(target=leave, name="smart-router release", daemon=True).start()
