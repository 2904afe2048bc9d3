"""The errors of this library.

A caller does one of three things: fix the code (InvalidArgumentError, ApiError), try elsewhere or later (NoPodsError,
RouterUnavailableError), or drop the call (CallNotFoundError, StaleFenceError, CallLostError). Every message is one line,
and none contains the API key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Optional, Type

if TYPE_CHECKING:
    from ._wire import WaitingPlace


class SmartRouterError(Exception):
    """The base class of all errors of this library."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        #: Stable, for branching: the router's code if it sent one, else one of this library's.
        self.code = code


class InvalidArgumentError(SmartRouterError, ValueError):
    """An option or argument is wrong; nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__("invalid_argument", message)


class ClientClosedError(SmartRouterError):
    """close() was called before or while the operation ran."""

    def __init__(self, operation: str) -> None:
        super().__init__("client_closed", f"{operation}: the client is closed. Create a new client.")


class OperationCancelledError(SmartRouterError):
    """The operation was cancelled by its Cancel; the router may have done it."""

    def __init__(self, operation: str) -> None:
        super().__init__("cancelled", f"{operation}: cancelled by the caller.")


_ADVICE: Dict[str, str] = {
    "invalid_request": "Fix the request: repeating it will not help.",
    "unauthorized": "Check api_key against SMART_ROUTER_API_KEY of the router.",
    "forbidden": "This key has no permission: check which key the router expects for this operation.",
    "not_found": "The router has no such path: check base_url.",
    "pod_not_found": "Check the pod name.",
    "pod_replaced": "Another pod has this name now: do nothing.",
    "too_many_requests": "Slow down and try again after retry_after seconds.",
    "no_pods": "Play a busy message, or try again after retry_after seconds.",
    "queue_full": "Play a busy message, or try again after retry_after seconds.",
    "wait_expired": "Play a busy message.",
    "merchant_limit": "Play a busy message, or try again when a call of this merchant has ended.",
    "call_not_found": "The call has ended or was never allocated: stop serving it.",
    "stale_fence": "The call now belongs to a later claim: stop serving it.",
    "stale_report": "A later report of this pod counts: drop this one.",
    "unexpected_status": "This is not a response of the router: check base_url and the proxies in between.",
}


def with_advice(text: str, hint: str) -> str:
    """Joins the message and our advice as two sentences."""
    sentence = text.rstrip().rstrip(".")
    if not sentence:
        return hint
    return f"{sentence}{'' if sentence[-1] in '!?' else '.'} {hint}"


class ApiError(SmartRouterError):
    """The router rejected the request. Not retried, except 429."""

    def __init__(
        self, operation: str, status: int, code: str, text: str, retry_after: Optional[float]
    ) -> None:
        hint = _ADVICE.get(code)
        message = with_advice(text, hint) if hint else text
        super().__init__(code, f"{operation}: the router answered {status} {code}: {message}")
        self.status = status
        #: Seconds, from Retry-After, uncapped; None when absent.
        self.retry_after = retry_after


class NoPodsError(ApiError):
    """The router works, but the call gets no pod. Not retried, and no reason for a fallback.

    `code` is no_pods (every pod is busy), queue_full (too many calls wait), wait_expired (it waited as long as the router
    allows) or merchant_limit (its merchant has as many calls as it may have).
    """


class StillWaitingError(SmartRouterError):
    """The call still waits for a pod when the `wait` of its allocate ends.

    It keeps its place for three poll intervals of the router (15 s): allocate it again with `wait`, or release it.
    """

    def __init__(self, operation: str, place: WaitingPlace) -> None:
        super().__init__(
            "still_waiting",
            f"{operation}: the call still waits for a pod, at place {place.position}. "
            "Allocate it again with wait to keep its place, or release it.",
        )
        self.position = place.position
        self.waiting_since = place.waiting_since
        self.wait_expires_at = place.wait_expires_at


class CallNotFoundError(ApiError):
    """404 call_not_found: the call has ended, or the router never knew it."""


class StaleFenceError(ApiError):
    """409 stale_fence: the call exists, but under a later claim than ours."""


class PodReplacedError(ApiError):
    """409 pod_replaced: another pod of this name is registered; the old pod and its calls have ended."""


_CLASSES: Dict[str, Type[ApiError]] = {
    "no_pods": NoPodsError,
    "queue_full": NoPodsError,
    "wait_expired": NoPodsError,
    "merchant_limit": NoPodsError,
    "call_not_found": CallNotFoundError,
    "stale_fence": StaleFenceError,
    "pod_replaced": PodReplacedError,
}


def refusal(operation: str, status: int, code: str, text: str, retry_after: Optional[float]) -> ApiError:
    """The only place where codes become error classes."""
    return _CLASSES.get(code, ApiError)(operation, status, code, text, retry_after)


def is_no_pod(code: Optional[str]) -> bool:
    """Whether a refusal with this code is a NoPodsError."""
    return code is not None and _CLASSES.get(code) is NoPodsError


class RouterUnavailableError(SmartRouterError):
    """The router is unreachable, timed out, failed with a 5xx, or sent an unexpected response."""

    def __init__(
        self,
        operation: str,
        reason: str,
        text: str,
        attempts: int,
        *,
        code: Optional[str] = None,
        status: Optional[int] = None,
        retry_after: Optional[float] = None,
    ) -> None:
        super().__init__(code or "router_unavailable", f"{operation}: {text} (requests sent: {attempts})")
        #: network, timeout, server_error, bad_response or breaker_open.
        self.reason = reason
        #: Requests sent: 0 if the breaker was open.
        self.attempts = attempts
        #: The HTTP status, when there was one.
        self.status = status
        self.retry_after = retry_after


_LOST = {
    "ended": "has ended at the router",
    "stale_fence": "now belongs to a later claim",
    "conflict": "is owned by another pod, has ended, or does not fit on this pod",
}


class CallLostError(SmartRouterError):
    """Why a call is no longer ours: see call.lost."""

    def __init__(self, call_sid: str, reason: str) -> None:
        super().__init__(
            "call_lost", f"Call {call_sid} {_LOST[reason]}: stop serving it; its pod may get other calls."
        )
        self.call_sid = call_sid
        #: ended, stale_fence or conflict.
        self.reason = reason


def is_down(error: BaseException) -> bool:
    """Whether the router is down. Not with a full Redis: the router still renews, releases and reports."""
    return isinstance(error, RouterUnavailableError) and error.code != "store_full"


def is_passing(error: BaseException) -> bool:
    """Whether the same request may succeed soon: the router is down or overloaded."""
    is_busy = isinstance(error, ApiError) and error.status == 429 and not isinstance(error, NoPodsError)
    return is_down(error) or is_busy
