"""The router's JSON as results. A decoder raises ShapeError for any other response, for example a proxy's login page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Dict, List, Mapping, Optional, Union

from ._checks import MAX_SAFE_INTEGER, is_fence

Body = Dict[str, Any]


class ShapeError(Exception):
    """The response is not the router's."""


@dataclass(frozen=True)
class Allocation:
    """The result of allocate. Times are the store's."""

    pod_name: str
    ws_url: str
    #: pool:{tier} or merchant:{id}.
    source_pool: str
    allocated_at: datetime
    lease_expires_at: datetime
    #: Identifies this claim of the call: with it, a late renew or release changes nothing.
    fence: int
    #: True when the call already had this pod: a retry, or another router replica was first.
    was_existing: bool
    #: Seconds that the call waited for its pod; None if it did not wait.
    waited: Optional[float]


@dataclass(frozen=True)
class WaitingPlace:
    """The place of a call that waits for a pod. Times are the store's."""

    #: Among the waiting calls of its merchant, from 1.
    position: int
    waiting_since: datetime
    #: When the router ends the wait: `max_wait` of its configuration.
    wait_expires_at: datetime
    #: Seconds after which the router expects the next request.
    retry_after: float


@dataclass(frozen=True)
class ReleaseResult:
    """How a release ended. No outcome needs any action.

    If `released` is false, `reason` is one of: already_ended (also when the response to the first attempt was lost),
    not_ours (a later claim holds the call), was_waiting (it waited for a pod and has left the queue), fallback (the call never had a pod), still_served (another connection of
    this agent serves the call).
    """

    released: bool
    reason: Optional[str] = None
    pod_name: Optional[str] = None
    #: The pool in which the pod is available again; None when it takes no new calls.
    released_to_pool: Optional[str] = None
    was_draining: bool = False


@dataclass(frozen=True)
class Report:
    """The response to a pod's report: lists of call SIDs."""

    #: Served by this pod and renewed.
    renewed: List[str]
    #: Calls that the router did not know and has assigned to this pod.
    adopted: List[str]
    #: Ended, because the pod no longer reported them.
    ended: List[str]
    #: Not calls of this pod: drop them.
    conflicts: List[str]
    #: The fences of reported calls.
    fences: Mapping[str, int]
    #: The router's time in milliseconds; None from older routers.
    at_ms: Optional[int]


@dataclass(frozen=True)
class DrainResult:
    pod_name: str
    has_active_call: bool
    active_calls: int
    message: str
    #: When the drain expires; None from older routers.
    drain_expires_at: Optional[datetime]


def _text(body: Body, field: str) -> str:
    value = body.get(field)
    if not isinstance(value, str) or not value:
        raise ShapeError(f"{field} is not a string")
    return value


def _flag(body: Body, field: str) -> bool:
    value = body.get(field)
    if not isinstance(value, bool):
        raise ShapeError(f"{field} is not true or false")
    return value


def _time(body: Body, field: str) -> datetime:
    text = _text(body, field)
    try:
        # Python 3.9 knows no Z.
        value = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    except ValueError:
        raise ShapeError(f"{field} is not an ISO 8601 time") from None
    if value.tzinfo is None:
        raise ShapeError(f"{field} has no time zone")
    return value


def _sids(body: Body, field: str) -> List[str]:
    value = body.get(field)
    if not isinstance(value, list) or not all(isinstance(sid, str) for sid in value):
        raise ShapeError(f"{field} is not an array of call SIDs")
    return value


def _integer(value: object) -> Optional[int]:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_SAFE_INTEGER:
        return None
    return value


def _count(body: Body, field: str) -> int:
    value = _integer(body.get(field))
    if value is None or value < 0:
        raise ShapeError(f"{field} is not an integer")
    return value


def decode_allocation(body: Body) -> Allocation:
    return Allocation(
        pod_name=_text(body, "pod_name"),
        ws_url=_text(body, "ws_url"),
        source_pool=_text(body, "source_pool"),
        allocated_at=_time(body, "allocated_at"),
        lease_expires_at=_time(body, "lease_expires_at"),
        fence=_count(body, "fence"),
        was_existing=_flag(body, "was_existing"),
        waited=_count(body, "waited_ms") / 1000 if "waited_ms" in body else None,
    )


def decode_allocation_or_place(body: Body) -> Union[Allocation, WaitingPlace]:
    """The response to an allocate with `wait`: a pod, or a place in the queue (202)."""
    if body.get("status") != "waiting":
        return decode_allocation(body)
    return WaitingPlace(
        position=_count(body, "position"),
        waiting_since=_time(body, "waiting_since"),
        wait_expires_at=_time(body, "wait_expires_at"),
        retry_after=_count(body, "retry_after_ms") / 1000,
    )


def decode_release(body: Body) -> ReleaseResult:
    if body.get("was_waiting") is True:
        return ReleaseResult(released=False, reason="was_waiting")
    to_pool = None if body.get("released_to_pool", "") is None else _text(body, "released_to_pool")
    return ReleaseResult(
        released=True,
        pod_name=_text(body, "pod_name"),
        released_to_pool=to_pool,
        was_draining=_flag(body, "was_draining"),
    )


def decode_renewal(body: Body) -> datetime:
    return _time(body, "lease_expires_at")


def decode_report(body: Body) -> Report:
    fences = body.get("fences") or {}
    if not isinstance(fences, dict) or not all(is_fence(fence) for fence in fences.values()):
        raise ShapeError("fences is not a map of call SIDs to integers")
    return Report(
        renewed=_sids(body, "renewed"),
        adopted=_sids(body, "adopted"),
        ended=_sids(body, "ended"),
        conflicts=_sids(body, "conflicts"),
        fences=fences,
        at_ms=_integer(body.get("at")),
    )


def decode_drain(body: Body) -> DrainResult:
    return DrainResult(
        pod_name=_text(body, "pod_name"),
        has_active_call=_flag(body, "has_active_call"),
        active_calls=_count(body, "active_calls"),
        message=_text(body, "message"),
        drain_expires_at=None if "drain_expires_at" not in body else _time(body, "drain_expires_at"),
    )


def decode_nothing(body: Body) -> None:
    """The contract promises only the success of an undrain."""
