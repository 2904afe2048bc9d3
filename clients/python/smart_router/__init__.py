"""The client of Smart Router for Python: telephony code and voice agents. Only the standard library.

GUARANTEES
  Bounded time. Each attempt has a deadline (2 s), there are at most `retries` + 1 of them, and a Retry-After counts only up
  to a cap: 14.7 s in all with the defaults. An allocate or a drain with `wait` takes that much longer.
  Safe retries. Allocate is idempotent by its SID, renew and release are fenced: a lost response costs a retry, never a
  second pod. Nothing is retried after a 4xx (except 429 `too_many_requests`), a refusal or `store_full`.
  A call without a pod is not an outage: it raises NoPodsError and never leads to the fallback URL.
  A lost call is noticed: `call.lost`, and `on_lost` of an agent.
  Background threads are daemons: they do not keep the process alive.

FAILURES
  Router down: RouterUnavailableError, or the fallback URL for allocate. Renewals and reports keep trying.
  After a failed release the agent's reports end the call within 30 s; without an agent its lease does.
  A cancelled or timed-out allocate may have taken a pod. A retry finds it; release() frees it; otherwise the lease does.

WEAKNESSES
  A DNS lookup is not part of the deadline: Python cannot interrupt it.
  Threads do not survive a fork: create the agent after the server has forked.
"""

from ._agent import Agent, AgentCall
from ._aio import AsyncAgent, AsyncCall, AsyncHeldCall, AsyncRouter
from ._call import Call, FallbackCall, HeldCall
from ._errors import (
    ApiError,
    CallLostError,
    CallNotFoundError,
    ClientClosedError,
    InvalidArgumentError,
    NoPodsError,
    OperationCancelledError,
    PodReplacedError,
    RouterUnavailableError,
    SmartRouterError,
    StaleFenceError,
    StillWaitingError,
)
from ._router import Router
from ._transport import Cancel
from ._version import __version__
from ._wire import DrainResult, ReleaseResult, Report, WaitingPlace

__all__ = [
    "Agent",
    "AgentCall",
    "ApiError",
    "AsyncAgent",
    "AsyncCall",
    "AsyncHeldCall",
    "AsyncRouter",
    "Call",
    "CallLostError",
    "CallNotFoundError",
    "Cancel",
    "ClientClosedError",
    "DrainResult",
    "FallbackCall",
    "HeldCall",
    "InvalidArgumentError",
    "NoPodsError",
    "OperationCancelledError",
    "PodReplacedError",
    "ReleaseResult",
    "Report",
    "Router",
    "RouterUnavailableError",
    "SmartRouterError",
    "StaleFenceError",
    "StillWaitingError",
    "WaitingPlace",
    "__version__",
]
