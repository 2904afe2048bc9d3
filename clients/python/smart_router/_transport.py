"""One request: a POST with a deadline.

Each request has a connection of its own. A kept connection that the router or a proxy has closed would fail requests after
a pause, and these would count as failures of the router.
"""

from __future__ import annotations

import http.client
import io
import json
import re
import socket
import threading
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Callable, Dict, Generic, Optional, TypeVar

from ._errors import (
    OperationCancelledError,
    RouterUnavailableError,
    SmartRouterError,
    is_no_pod,
    refusal,
    with_advice,
)
from ._version import __version__
from ._wire import Body, ShapeError

T = TypeVar("T")

#: The response to a report can be largest: 10,000 calls of at most 1 KiB, each named twice.
MAX_ANSWER_BYTES = 32 * 1024 * 1024
#: Messages of the router are shorter; that of a proxy may be a whole page.
MAX_MESSAGE_LENGTH = 2000


class Cancel:
    """Cancels operations from another thread: pass it to an operation as `cancel`, then call `cancel()`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._stops: Dict[object, Callable[[], None]] = {}

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()

    def cancel(self) -> None:
        with self._lock:
            self._event.set()
            stops = list(self._stops.values())
            self._stops.clear()
        for stop in stops:
            stop()

    def _on_cancel(self, stop: Callable[[], None]) -> Callable[[], None]:
        """Runs `stop` at the cancellation, or now if it has happened; the returned function forgets it."""
        key = object()
        with self._lock:
            if not self._event.is_set():
                self._stops[key] = stop
                return lambda: self._forget(key)
        stop()
        return lambda: None

    def _forget(self, key: object) -> None:
        with self._lock:
            self._stops.pop(key, None)


class Scope:
    """One operation in flight: its sleeps and its socket end when it is cancelled or the client closes."""

    def __init__(self, operation: str, cancel: Optional[Cancel]) -> None:
        self._operation = operation
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._error: Optional[SmartRouterError] = None
        self._socket: Optional[socket.socket] = None
        self.forget: Callable[[], None] = lambda: None
        if cancel is not None:
            self.forget = cancel._on_cancel(lambda: self.abort(OperationCancelledError(operation)))

    def abort(self, error: SmartRouterError) -> None:
        with self._lock:
            self._error = self._error or error
            self._ended.set()
            self._shut_down()

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def sleep(self, seconds: float) -> None:
        self._ended.wait(max(0.0, seconds))
        self.check()

    def watch(self, sock: Optional[socket.socket]) -> None:
        with self._lock:
            self._socket = sock
            if self._error is not None:
                self._shut_down()

    def _shut_down(self) -> None:
        try:
            # The plain shutdown, also of a TLS socket: its own would drop the session while another thread reads.
            if self._socket is not None:
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            pass


class Endpoint:
    """Where the router is, and the key. The key is in no repr."""

    def __init__(self, scheme: str, host: str, port: int, prefix: str, api_key: Optional[str]) -> None:
        self.host = host
        self.port = port
        self.prefix = prefix
        self._api_key = api_key
        name = f"[{host}]" if ":" in host else host
        self.url = f"{scheme}://{name}:{port}{prefix}"
        self._tls: Any = None
        if scheme == "https":
            import ssl

            self._tls = ssl.create_default_context()

    def __repr__(self) -> str:
        return f"<Endpoint {self.url}>"

    def headers(self) -> Dict[str, str]:
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": f"smart-router-python/{__version__}",
        }
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        return headers

    def quote(self, text: str) -> str:
        """Without the key, on one line, and of limited length."""
        if self._api_key is not None:
            text = text.replace(self._api_key, "[api key]")
        return " ".join(text.split())[:MAX_MESSAGE_LENGTH]

    def connect(self, deadline: float, scope: Scope) -> socket.socket:
        last: Optional[OSError] = None
        for family, kind, proto, _, address in socket.getaddrinfo(
            self.host, self.port, type=socket.SOCK_STREAM
        ):
            scope.check()
            sock = socket.socket(family, kind, proto)
            try:
                scope.watch(sock)
                sock.settimeout(_left(deadline))
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls is not None:
                    sock = self._tls.wrap_socket(sock, server_hostname=self.host)
                    scope.watch(sock)
                return sock
            except OSError as error:
                last = error
                scope.watch(None)
                sock.close()
        raise last or OSError(f"{self.host} has no address")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise socket.timeout("timed out")
    return left


class _DeadlineReader(io.RawIOBase):
    """Reads a socket until the deadline; a timeout of the socket itself would start anew with every byte.

    It limits the size too: after a chunk of negative length, http.client reads everything into memory.
    """

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        super().__init__()
        self._sock = sock
        self._deadline = deadline
        self._size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_left(self._deadline))
        size = self._sock.recv_into(buffer)
        self._size += size
        if self._size > MAX_ANSWER_BYTES:
            raise ShapeError(f"it is longer than {MAX_ANSWER_BYTES} bytes")
        return size

    def makefile(self, mode: str) -> io.BufferedReader:
        """What http.client.HTTPResponse asks a socket for."""
        return io.BufferedReader(self)


@dataclass(frozen=True)
class Attempt(Generic[T]):
    #: For messages: `allocate CA123`.
    operation: str
    #: Below /api/v1.
    path: str
    body: Body
    timeout: float
    #: Counting this one.
    attempts: int
    decode: Callable[[Body], T]


def send_once(endpoint: Endpoint, attempt: Attempt[T], scope: Scope) -> T:
    """Sends one request. If the scope was aborted, the raised error has no meaning: check the scope first."""
    deadline = time.monotonic() + attempt.timeout
    at = f"the router at {endpoint.url}"
    status: Optional[int] = None
    sock: Optional[socket.socket] = None
    try:
        sock = endpoint.connect(deadline, scope)
        connection = http.client.HTTPConnection(endpoint.host, endpoint.port)
        connection.sock = sock
        sock.settimeout(_left(deadline))
        body = {name: value for name, value in attempt.body.items() if value is not None}
        path = f"{endpoint.prefix}/api/v1{attempt.path}"
        connection.request("POST", path, json.dumps(body).encode(), endpoint.headers())
        reader: Any = _DeadlineReader(sock, deadline)
        with http.client.HTTPResponse(reader, method="POST") as response:
            response.begin()
            status = response.status
            return _interpret(endpoint, attempt, response, _read(response))
    except SmartRouterError:
        raise
    except ShapeError as error:
        text = f"{at} answered {status}, but {error}. Check that base_url is the router and not a proxy."
        raise RouterUnavailableError(
            attempt.operation, "bad_response", text, attempt.attempts, status=status
        ) from None
    except socket.timeout:
        text = f"{at} did not answer within {attempt.timeout:g} s. Check that it is running and not overloaded."
        raise RouterUnavailableError(attempt.operation, "timeout", text, attempt.attempts) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = endpoint.quote(str(error) or type(error).__name__)
        text = f"cannot reach {at}: {why}. Check base_url, DNS and the network."
        raise RouterUnavailableError(attempt.operation, "network", text, attempt.attempts) from error
    finally:
        scope.watch(None)
        if sock is not None:
            sock.close()


def _read(response: http.client.HTTPResponse) -> bytes:
    chunks = list(iter(lambda: response.read(65_536), b""))
    # read(n) does not notice that the body is shorter than its Content-Length.
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(chunks)


def _interpret(
    endpoint: Endpoint, attempt: Attempt[T], response: http.client.HTTPResponse, data: bytes
) -> T:
    """Turns a response into a result or an error. Never quotes the body: a proxy may echo our headers in it."""
    body = _parse(data)
    status = response.status
    given = body.get("code") if body else None
    # Codes of the router are words; any other text may contain our key.
    code = given if isinstance(given, str) and re.fullmatch(r"[a-z_]{1,64}", given) else None
    if 200 <= status < 300:
        if body is None:
            raise ShapeError("it is not a JSON object")
        if body.get("success") is False:
            raise ShapeError("it says success: false with a 2xx status")
        return attempt.decode(body)
    if 300 <= status < 400:
        raise ShapeError("it is a redirect, which this client does not follow")
    message = body.get("error") if body else None
    text = endpoint.quote(message) if isinstance(message, str) else "no JSON error body."
    retry_after = _retry_after(response.getheader("Retry-After"))
    if status >= 500 and not (status == 503 and is_no_pod(code)):
        why = with_advice(text, "Check its log and /ready.")
        raise RouterUnavailableError(
            attempt.operation,
            "server_error",
            f"the router at {endpoint.url} answered {status} {code or ''}: {why}",
            attempt.attempts,
            code=code,
            status=status,
            retry_after=retry_after,
        )
    raise refusal(attempt.operation, status, code or "unexpected_status", text, retry_after)


def _parse(data: bytes) -> Optional[Body]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _retry_after(header: Optional[str]) -> Optional[float]:
    """Retry-After in seconds or as an HTTP date; None for anything else."""
    text = (header or "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
