"""Runs the operations of the conformance suite on the Python client: see format.ts.

Requests are lines of JSON on stdin, `{"id", "op", "args"}`; answers are lines on stdout, `{"id", "outcome"}`. Operations run
at the same time. With the argument `async` it uses AsyncRouter and AsyncAgent, otherwise Router and Agent in threads.
"""

import asyncio
import inspect
import json
import logging
import sys
import threading

import smart_router

is_async = sys.argv[1:] == ["async"]
Router = smart_router.AsyncRouter if is_async else smart_router.Router
Agent = smart_router.AsyncAgent if is_async else smart_router.Agent

# Log lines go to stderr, where the suite looks for the key.
logging.basicConfig(level=logging.DEBUG)

SETTINGS = {
    "api_key": ("api_key", 1),
    "timeout_ms": ("timeout", 1000),
    "retries": ("retries", 1),
    "backoff_base_ms": ("backoff", 1000),
    "breaker_failures": ("breaker_failures", 1),
    "breaker_open_ms": ("breaker_open", 1000),
    "breaker_trials": ("breaker_trials", 1),
    "fallback_url": ("fallback_url", 1),
}


async def get(value):
    """The result of an operation of either client."""
    return await value if inspect.isawaitable(value) else value


class Session:
    def open(self, url, apiKey, client, agent=None):
        options = {"api_key": apiKey}
        for name, value in client.items():
            option, scale = SETTINGS[name]
            options[option] = value if scale == 1 else value / scale
        self.router = Router(url, **options)
        self.agent = None
        self.allocated = {}
        self.held = {}
        self.served = {}
        if agent is not None:
            self.agent = Agent(self.router, pod_name=agent["pod"], interval=agent["interval_ms"] / 1000)
            self.agent.drain_on_sigterm(wait=60)
        # Neither may show the key.
        return {"shown": f"{self.router!r} {self.agent!r} {vars(self.router)!r}"}

    async def close(self):
        await get(self.router.close())
        return {}

    async def allocate(self, call, merchant=None, wait_ms=None):
        wait = None if wait_ms is None else wait_ms / 1000
        allocated = await get(self.router.allocate(call, merchant_id=merchant, wait=wait))
        self.allocated[call] = allocated
        names = ("pod_name", "ws_url", "fence", "was_existing", "fallback")
        fields = {name: getattr(allocated, name) for name in names}
        return {**fields, "has_waited": allocated.waited is not None}

    async def release(self, call, fence=None):
        allocated = self.allocated.get(call)
        if allocated is not None and allocated.fallback:
            return await released(allocated.release())
        return await released(self.router.release(call, fence=fence))

    async def renew(self, call, fence=None):
        await get(self.router.renew(call, fence=fence))
        return {}

    async def report(self, pod, calls):
        report = await get(self.router.report(pod, calls))
        return {name: getattr(report, name) for name in ("renewed", "adopted", "ended", "conflicts")}

    async def drain(self, pod, wait_ms=0):
        return {"active_calls": (await get(self.router.drain(pod, wait=wait_ms / 1000))).active_calls}

    async def undrain(self, pod):
        await get(self.router.undrain(pod))
        return {}

    async def breaker(self):
        return {"state": self.router.breaker_state}

    async def hold(self, call, period_ms, fence=None):
        self.held[call] = self.router.call(call, fence)
        self.held[call].keep_alive(period_ms / 1000)
        return {}

    async def end_hold(self, call):
        return await released(self.held[call].release())

    async def begin_call(self, call, fence=None):
        self.served[call] = self.agent.call(call, fence)
        return {}

    async def end_call(self, call):
        served = self.served[call]
        # As at the end of `with`.
        if is_async:
            await served.__aexit__(None, None, None)
        else:
            served.__exit__(None, None, None)
        return {}

    async def calls(self):
        return {"calls": sorted(self.agent.calls)}

    async def lost(self, call):
        handle = self.served.get(call) or self.held[call]
        return {"reason": (await get(handle.wait_lost())).reason}

    async def drain_agent(self, wait_ms):
        return {"active_calls": (await get(self.agent.drain(wait=wait_ms / 1000))).active_calls}


async def released(result):
    result = await get(result)
    return {"released": result.released, "reason": result.reason}


session = Session()
lock = threading.Lock()


async def answer(request):
    try:
        outcome = await get(getattr(session, request["op"])(**request["args"]))
    except smart_router.SmartRouterError as error:
        outcome = {"error": error.code, "message": str(error), "shown": repr(error), **vars(error)}
    except BaseException as error:
        outcome = {"error": "bug in the driver", "message": repr(error)}
    with lock:
        print(json.dumps({"id": request["id"], "outcome": outcome}, default=str), flush=True)


def run_in_threads():
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "open":
            # Only the main thread may install a signal handler.
            asyncio.run(answer(request))
        else:
            threading.Thread(target=asyncio.run, args=(answer(request),), daemon=True).start()


async def run_in_loop():
    loop = asyncio.get_running_loop()
    tasks = set()
    while True:
        line = await loop.run_in_executor(None, sys.stdin.readline)
        if not line:
            return
        task = loop.create_task(answer(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


asyncio.run(run_in_loop()) if is_async else run_in_threads()
