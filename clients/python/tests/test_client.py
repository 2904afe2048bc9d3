"""What is special about the Python client: threads, deadlines, cancellation, signals. The conformance suite of the
repository covers the rules that all clients share. Run: `python3 -m unittest discover tests`.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from contextlib import contextmanager

import smart_router
from smart_router import (
    Agent,
    AsyncAgent,
    AsyncRouter,
    Cancel,
    ClientClosedError,
    FallbackCall,
    InvalidArgumentError,
    OperationCancelledError,
    Router,
    RouterUnavailableError,
)

logging.getLogger("smart_router").addHandler(logging.NullHandler())
logging.getLogger("smart_router").propagate = False

REPORT = {"renewed": [], "adopted": [], "ended": [], "conflicts": [], "fences": {}}
RELEASED = {"success": True, "pod_name": "p", "released_to_pool": "pool:gold", "was_draining": False}
RENEWED = {"success": True, "lease_expires_at": "2030-01-01T00:00:00.000Z"}
DRAINED = {"success": True, "pod_name": "p", "has_active_call": False, "active_calls": 0, "message": "m"}
ANSWERS = {"report": REPORT, "release": RELEASED, "renew": RENEWED, "drain": DRAINED}


class ScriptedRouter:
    """A server that answers what the test says: `answer(route, body)` returns JSON, bytes, or None to hang."""

    def __init__(self):
        self.received = []
        self.answer = lambda route, body: ANSWERS[route]
        self.arrived = threading.Condition()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self._open = []
        threading.Thread(target=self._accept, daemon=True).start()

    def wait_for(self, route, count=1):
        with self.arrived:
            found = self.arrived.wait_for(
                lambda: sum(1 for name, _ in self.received if name == route) >= count, 30
            )
        assert found, f"no request to {route}: {self.received}"

    def bodies(self, route):
        return [body for name, body in self.received if name == route]

    def close(self):
        try:
            # Closing alone does not end an accept() in another thread.
            self._server.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._server.close()
        for connection in self._open:
            connection.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            reader = connection.makefile("rb")
            route = reader.readline().split()[1].decode().rsplit("/", 1)[1]
            length = 0
            for line in iter(reader.readline, b"\r\n"):
                name, _, value = line.decode().partition(":")
                length = int(value) if name.lower() == "content-length" else length
            body = json.loads(reader.read(length))
            with self.arrived:
                self.received.append((route, body))
                self.arrived.notify_all()
            answer = self.answer(route, body)
            if answer is None:
                return
            if callable(answer):
                answer(connection)
                return
            data = json.dumps(answer).encode()
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data))
        except (OSError, IndexError):
            pass


class ClientTest(unittest.TestCase):
    def setUp(self):
        self.server = ScriptedRouter()
        self.addCleanup(self.server.close)

    def router(self, **options):
        router = Router(self.server.url, **{"retries": 0, "timeout": 30.0, **options})
        self.addCleanup(router.close)
        return router

    @contextmanager
    def in_thread(self, function):
        """Runs a function that must fail; yields the list that gets its error."""
        errors = []

        def run():
            try:
                function()
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        yield errors
        thread.join(30)
        self.assertFalse(thread.is_alive())


class Deadlines(ClientTest):
    def test_bytes_that_trickle_in_do_not_extend_the_deadline(self):
        def trickle(connection):
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            for _ in range(10_000):
                connection.sendall(b"X-Slow: 1\r\n")
                time.sleep(0.01)

        self.server.answer = lambda route, body: trickle
        with self.assertRaises(RouterUnavailableError) as raised:
            self.router(timeout=0.2).renew("CA1")
        self.assertEqual(raised.exception.reason, "timeout")

    def test_an_endless_body_is_refused(self):
        # http.client reads all that follows a chunk of negative length at once.
        for start in (b"\r\n", b"Transfer-Encoding: chunked\r\n\r\n-1\r\n"):

            def flood(connection, start=start):
                connection.sendall(b"HTTP/1.1 200 OK\r\n" + start)
                while True:
                    connection.sendall(b"x" * 1_000_000)

            self.server.answer = lambda route, body, flood=flood: flood
            with self.subTest(start), self.assertRaises(RouterUnavailableError) as raised:
                self.router(timeout=10).renew("CA1")
            self.assertEqual(raised.exception.reason, "bad_response")


class Cancelling(ClientTest):
    def test_cancel_ends_a_request_in_flight(self):
        self.server.answer = lambda route, body: None
        router, cancel = self.router(breaker_failures=1), Cancel()
        with self.in_thread(lambda: router.renew("CA1", cancel=cancel)) as errors:
            self.server.wait_for("renew")
            cancel.cancel()
        self.assertIsInstance(errors[0], OperationCancelledError)
        # It says nothing about the router.
        self.assertEqual(router.breaker_state, "closed")

    def test_close_ends_requests_and_waits_in_flight(self):
        self.server.answer = lambda route, body: (
            None if route == "renew" else {**DRAINED, "has_active_call": True, "active_calls": 1}
        )
        router = self.router()
        with self.in_thread(lambda: router.renew("CA1")) as renewals:
            with self.in_thread(lambda: router.drain("p", wait=600)) as drains:
                self.server.wait_for("renew")
                self.server.wait_for("drain")
                router.close()
        self.assertIsInstance(renewals[0], ClientClosedError)
        self.assertIsInstance(drains[0], ClientClosedError)
        with self.assertRaises(ClientClosedError):
            router.renew("CA1")

    def test_background_threads_do_not_keep_the_process_alive(self):
        program = (
            "import sys, smart_router\n"
            "router = smart_router.Router(sys.argv[1])\n"
            "agent = smart_router.Agent(router, 'p')\n"
            "router.call('CA1').keep_alive()\n"
            "agent.report()\n"
        )
        subprocess.run([sys.executable, "-B", "-c", program, self.server.url], check=True, timeout=60)


class Holding(ClientTest):
    def test_with_renews_and_releases_and_keeps_the_error_of_the_body(self):
        def answer(route, body):
            if route == "release":
                return lambda connection: connection.close()
            return RENEWED

        self.server.answer = answer
        with self.assertRaisesRegex(KeyError, "of the body"):
            with self.router().call("CA1", 7):
                self.server.wait_for("renew")
                raise KeyError("of the body")
        self.assertEqual(self.server.bodies("release"), [{"call_sid": "CA1", "fence": 7}])

    def test_a_release_of_a_waiting_call_is_no_failure_of_the_router(self):
        waiting = {**RELEASED, "pod_name": None, "released_to_pool": None, "was_waiting": True}
        self.server.answer = lambda route, _: waiting if route == "release" else ANSWERS[route]
        router = self.router()
        for _ in range(10):
            self.assertEqual(router.release("CA1").reason, "was_waiting")

    def test_concurrent_releases_send_one_request(self):
        call = self.router().call("CA1", 7)
        threads = [threading.Thread(target=call.release) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(call.release().released)
        self.assertEqual(len(self.server.bodies("release")), 1)

    def test_a_fallback_function_that_fails_gives_the_error_of_the_router(self):
        self.server.close()
        urls = iter(["wss://x.example.com"])
        router = self.router(fallback_url=lambda sid: next(urls))
        self.assertIsInstance(router.allocate("CA1"), FallbackCall)
        with self.assertRaises(RouterUnavailableError):
            router.allocate("CA1")


class Agents(ClientTest):
    def test_two_connections_of_one_call_release_it_once(self):
        agent = Agent(self.router(), "p")
        first, second = agent.call("CA1"), agent.call("CA1")
        self.assertEqual(first.release().reason, "still_served")
        self.assertEqual(agent.calls, ("CA1",))
        self.assertTrue(second.release().released)
        self.assertEqual((agent.calls, len(self.server.bodies("release"))), ((), 1))

    def test_reports_a_new_call_at_once(self):
        agent = Agent(self.router(), "p", interval=86_400)
        self.server.wait_for("report")
        agent.call("CA1")
        self.server.wait_for("report", 2)
        # More than ten minutes: the router would block the pod too early.
        self.assertEqual(self.server.bodies("report")[-1], {"calls": ["CA1"]})

    def test_learns_the_fence_from_a_report(self):
        agent = Agent(self.router(), "p")
        call = agent.call("CA1")
        self.server.answer = lambda route, body: (
            {**REPORT, "fences": {"CA1": 9}, "at": 1} if route == "report" else RELEASED
        )
        agent.report()
        call.release()
        self.assertEqual(self.server.bodies("release"), [{"call_sid": "CA1", "fence": 9}])

    def test_drain_waits_for_its_own_calls_if_the_router_refuses(self):
        refused = b'{"success":false,"code":"pod_not_found","error":"no such pod"}'
        answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n%s" % (len(refused), refused)
        self.server.answer = lambda route, body: (
            (lambda connection: connection.sendall(answer)) if route == "drain" else ANSWERS[route]
        )
        agent = Agent(self.router(), "p")
        call = agent.call("CA1")
        with self.in_thread(lambda: agent.drain(wait=600)) as errors:
            self.server.wait_for("drain")
            self.assertEqual(errors, [])
            call.release()
        self.assertEqual(errors[0].code, "pod_not_found")

    def test_takes_no_call_after_close(self):
        agent = Agent(self.router(), "p")
        agent.close()
        with self.assertRaises(ClientClosedError):
            agent.call("CA1")

    def test_sigterm_reaches_the_previous_handler_after_the_last_call(self):
        reached = threading.Event()
        before = signal.signal(signal.SIGTERM, lambda *_: reached.set())
        self.addCleanup(signal.signal, signal.SIGTERM, before)
        agent = Agent(self.router(), "p")
        agent.drain_on_sigterm(wait=600)
        call = agent.call("CA1")
        os.kill(os.getpid(), signal.SIGTERM)
        self.server.wait_for("drain")
        self.assertFalse(reached.is_set())
        call.release()
        self.assertTrue(reached.wait(30))


class Arguments(unittest.TestCase):
    def test_options_are_checked_and_never_quoted(self):
        secret = "user:hunter\n2"
        for arguments in (
            {"base_url": "x"},
            {"base_url": f"http://{secret}@router"},
            {"base_url": "http://u:p@router"},
            {"base_url": "ftp://router"},
            {"base_url": "http://router:99999"},
            {"base_url": "http://router?x=1"},
            {"base_url": None},
            {"api_key": secret},
            {"api_key": ""},
            {"timeout": 0},
            {"timeout": True},
            {"timeout": float("nan")},
            {"retries": -1},
            {"retries": 1.5},
            {"breaker_open": float("inf")},
            {"fallback_url": "x"},
        ):
            with self.subTest(arguments), self.assertRaises(InvalidArgumentError) as raised:
                Router(**{"base_url": "http://router", **arguments})
            self.assertNotIn("hunter", str(raised.exception))
            self.assertNotIn("\n", str(raised.exception))

    def test_urls_keep_their_prefix_and_port(self):
        for given, shown in (
            ("http://router/", "http://router:80"),
            ("http://[::1]:8080/a/b/", "http://[::1]:8080/a/b"),
        ):
            self.assertIn(f"<Router {shown} ", repr(Router(given)))

    def test_arguments_are_checked(self):
        router = Router("http://127.0.0.1:9", retries=0)
        for wrong in (
            lambda: router.allocate("CA1", merchant_id=7),
            lambda: router.call("CA1", True),
            lambda: router.renew("x" * 257),
            lambda: router.report("p", ["CA1"] * 10_001),
            lambda: router.report("p", {"CA1"}),
            lambda: router.drain("p", wait="5m"),
            lambda: router.drain("p", wait=86_401),
            lambda: Agent(router, "P"),
            lambda: Agent(router, "p", interval=0),
        ):
            with self.assertRaises(InvalidArgumentError):
                wrong()

    def test_every_public_name_is_there(self):
        for name in smart_router.__all__:
            self.assertTrue(hasattr(smart_router, name), name)


class Asynchronous(ClientTest):
    def run_async(self, test):
        async def run():
            async with AsyncRouter(self.server.url, retries=0, timeout=30.0) as router:
                await asyncio.wait_for(test(router), 60)

        asyncio.run(run())

    async def arrived(self, route):
        await asyncio.get_running_loop().run_in_executor(None, self.server.wait_for, route)

    def test_a_cancelled_session_still_releases_its_call(self):
        async def test(router):
            async def session():
                async with router.call("CA1", 7):
                    await asyncio.sleep(3600)

            task = asyncio.ensure_future(session())
            await self.arrived("renew")
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(self.server.bodies("release"), [{"call_sid": "CA1", "fence": 7}])

        self.run_async(test)

    def test_a_release_completes_when_its_task_is_cancelled_again(self):
        proceed, done = threading.Event(), threading.Event()

        def release(connection):
            proceed.wait(30)
            data = json.dumps(RELEASED).encode()
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data))
            # The client closes its connection after it has read the answer, not before.
            if connection.recv(1) == b"":
                done.set()

        self.server.answer = lambda route, body: release if route == "release" else RENEWED

        async def test(router):
            async def session():
                async with router.call("CA1", 7):
                    pass

            task = asyncio.ensure_future(session())
            await self.arrived("release")
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            proceed.set()
            await asyncio.get_running_loop().run_in_executor(None, done.wait, 30)
            self.assertTrue(done.is_set())

        self.run_async(test)

    def test_cancelling_a_drain_ends_its_request(self):
        self.server.answer = lambda route, body: None

        async def test(router):
            task = asyncio.ensure_future(router.drain("p", wait=600))
            await self.arrived("drain")
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            names = lambda: [thread.name for thread in threading.enumerate()]  # noqa: E731
            while "smart-router operation" in names():
                await asyncio.sleep(0.01)

        self.run_async(test)

    def test_the_loop_runs_while_the_router_is_slow(self):
        self.server.answer = lambda route, body: None

        async def test(router):
            tasks = [asyncio.ensure_future(router.renew(f"CA{i}")) for i in range(50)]
            await asyncio.get_running_loop().run_in_executor(None, self.server.wait_for, "renew", 50)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self.assertTrue(all(isinstance(result, asyncio.CancelledError) for result in results))

        self.run_async(test)

    def test_on_lost_runs_in_the_loop(self):
        self.server.answer = lambda route, body: {**REPORT, "conflicts": body.get("calls", [])}

        async def test(router):
            loop = asyncio.get_running_loop()
            lost = loop.create_future()

            def on_lost(call_sid, error):
                self.assertIs(asyncio.get_running_loop(), loop)
                lost.set_result((call_sid, error.reason))

            agent = AsyncAgent(router, "p", on_lost=on_lost)
            call = agent.call("CA1")
            self.assertEqual(await lost, ("CA1", "conflict"))
            self.assertEqual((await call.wait_lost()).reason, "conflict")
            # Nothing is sent: without a fence the release would end the call on another pod.
            self.assertEqual((await call.release()).reason, "not_ours")
            self.assertEqual(self.server.bodies("release"), [])

        self.run_async(test)

    def test_refuses_sigterm_if_the_loop_handles_it(self):
        async def test(router):
            loop = asyncio.get_running_loop()
            agent = AsyncAgent(router, "p")
            loop.add_signal_handler(signal.SIGTERM, lambda: None)
            try:
                with self.assertRaisesRegex(InvalidArgumentError, "call agent.drain"):
                    agent.drain_on_sigterm()
            finally:
                loop.remove_signal_handler(signal.SIGTERM)

        self.run_async(test)


if __name__ == "__main__":
    unittest.main()
