"""Checks of options and arguments: they reject what the router would reject, before anything is sent."""

from __future__ import annotations

import math
import re
from typing import Callable, Optional, Sequence, Tuple, Union
from urllib.parse import urlsplit

from ._errors import InvalidArgumentError

#: One day, in seconds.
MAX_DURATION = 86_400.0

#: Integers that a double holds exactly: the router and other clients read JSON numbers as doubles.
MAX_SAFE_INTEGER = 2**53 - 1

FallbackUrl = Union[str, Callable[[str], str]]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_POD = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_VISIBLE = re.compile(r"[\x21-\x7e]+")


def number(name: str, value: object, low: float, high: float) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or not low <= value <= high
    ):
        raise InvalidArgumentError(f"{name} must be a number from {low:g} to {high:g}.")
    return value


def integer(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidArgumentError(f"{name} must be an integer from {low} to {high}.")
    return value


def optional_text(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, str) or len(value) > 1024):
        raise InvalidArgumentError(f"{name} must be a string of at most 1024 characters.")


def call_sid(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= 256 or _CONTROL.search(value):
        raise InvalidArgumentError("call_sid must be 1 to 256 characters of valid Unicode without control characters.")
    return value


def call_sids(value: Sequence[str]) -> Tuple[str, ...]:
    # Anything but a list must not count as one: an empty list would end the pod's calls, and a string is a sequence.
    if not isinstance(value, (list, tuple)):
        raise InvalidArgumentError("calls must be a list or tuple of call SIDs.")
    if len(value) > 10_000:
        raise InvalidArgumentError("calls must have at most 10000 call SIDs.")
    return tuple(call_sid(sid) for sid in value)


def pod(value: object) -> str:
    """Also keeps `..` and the like out of the path."""
    if not isinstance(value, str) or len(value) > 253 or not _POD.fullmatch(value):
        raise InvalidArgumentError(
            "The pod must be a Kubernetes name: lower-case letters, digits, - and dots."
        )
    return value


def is_fence(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_SAFE_INTEGER


def fence(value: Optional[int]) -> None:
    if value is not None and not is_fence(value):
        raise InvalidArgumentError("fence must be the integer from the allocation.")


# Messages below never quote the value: a URL may hold a password, and a malformed key is still a key.


def base_url(value: object) -> Tuple[str, str, int, str]:
    """Scheme, host, port and path prefix of the router's URL."""
    example = 'for example "http://smart-router:8080"'
    try:
        if not isinstance(value, str) or not _VISIBLE.fullmatch(value):
            raise ValueError
        url = urlsplit(value)
        host, port = url.hostname, url.port
    except ValueError:
        raise InvalidArgumentError(f"base_url must be an absolute URL, {example}.") from None
    if url.scheme not in ("http", "https") or not host:
        raise InvalidArgumentError(f"base_url must start with http:// or https://, {example}.")
    if "@" in url.netloc or url.query or url.fragment or "?" in value or "#" in value:
        raise InvalidArgumentError(f"base_url must have no user, password, query or fragment, {example}.")
    default = 443 if url.scheme == "https" else 80
    return url.scheme, host, default if port is None else port, url.path.rstrip("/")


def api_key(value: object) -> Optional[str]:
    if value is None:
        return None
    if not isinstance(value, str) or not _VISIBLE.fullmatch(value):
        raise InvalidArgumentError("api_key must be printable ASCII without spaces or line breaks.")
    return value


def fallback_url(value: Optional[FallbackUrl]) -> Optional[FallbackUrl]:
    if value is None or callable(value) or is_url(value):
        return value
    raise InvalidArgumentError(
        'fallback_url must be an absolute URL, for example "wss://agents.example.com/ws", '
        "or a function of the call SID that returns one."
    )


def is_url(value: object) -> bool:
    try:
        url = urlsplit(value) if isinstance(value, str) else None
    except ValueError:
        return False
    return url is not None and bool(url.scheme) and bool(url.netloc)
