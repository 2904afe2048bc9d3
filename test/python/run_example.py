"""Runs an example of clients/python/examples with stand-ins for the frameworks: `python3 run_example.py EXAMPLE`.

The stand-ins have the shape of uvicorn, FastAPI, Pipecat and LiveKit that the examples use, and no audio. Lines of JSON on
stdin act as the telephony provider: {"connect": SID} and {"hang_up": SID}. Lines on stdout say what happened.
"""

import asyncio
import importlib.util
import inspect
import json
import signal
import sys
import threading
import types


def say(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


def module(name, **members):
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        path = ".".join(parts[:end])
        if path not in sys.modules:
            sys.modules[path] = types.ModuleType(path)
            if end > 1:
                setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], sys.modules[path])
    vars(sys.modules[name]).update(members)


async def read_commands(handle):
    """Calls `handle(name, sid)` in the loop for every line of stdin."""
    loop = asyncio.get_running_loop()

    def read():
        for line in sys.stdin:
            ((name, sid),) = json.loads(line).items()
            loop.call_soon_threadsafe(handle, name, sid)

    threading.Thread(target=read, daemon=True).start()


# --- FastAPI, uvicorn, Pipecat ---


class FastAPI:
    def __init__(self, lifespan):
        self.lifespan = lifespan
        self.state = types.SimpleNamespace()

    def websocket(self, path):
        def register(function):
            self.answer = function
            return function

        return register


class WebSocket:
    def __init__(self, sid):
        self.sid = sid
        self.closed = asyncio.Event()

    async def accept(self):
        pass


class Uvicorn:
    """Its handler of SIGTERM only sets a flag; the signal is raised again after the end of the lifespan."""

    def run(self, app, host, port):
        asyncio.run(self.serve(app))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)

    async def serve(self, app):
        loop = asyncio.get_running_loop()
        should_exit = asyncio.Event()
        signal.signal(signal.SIGTERM, lambda *_: loop.call_soon_threadsafe(should_exit.set))
        sockets = {}
        tasks = set()

        async def serve_call(sid):
            sockets[sid] = WebSocket(sid)
            try:
                await app.answer(sockets[sid])
                say("ended", call=sid)
            except BaseException as error:
                # The shutdown may come between the release and its answer: a caller that has hung up is not cut.
                if sockets[sid].closed.is_set():
                    say("ended", call=sid)
                else:
                    say("failed", call=sid, error=repr(error))

        def handle(name, sid):
            if name == "connect":
                task = loop.create_task(serve_call(sid))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            else:
                sockets[sid].closed.set()

        async with app.lifespan(app):
            await read_commands(handle)
            say("started")
            await should_exit.wait()
            # Open connections are cut, as a server does at its shutdown.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        say("stopped")


class Transport:
    def __init__(self, websocket, params):
        self.websocket = websocket
        self.handlers = {}

    def input(self):
        return self

    output = input

    def event_handler(self, name):
        def register(function):
            self.handlers[name] = function
            return function

        return register


class PipelineTask:
    def __init__(self, pipeline):
        self.transport = pipeline[0]
        self.cancelled = asyncio.Event()

    async def cancel(self):
        self.cancelled.set()


class PipelineRunner:
    def __init__(self, handle_sigint):
        pass

    async def run(self, task):
        transport = task.transport
        say("talking", call=transport.websocket.sid)
        closed = asyncio.ensure_future(transport.websocket.closed.wait())
        cancelled = asyncio.ensure_future(task.cancelled.wait())
        await asyncio.wait([closed, cancelled], return_when=asyncio.FIRST_COMPLETED)
        if closed.done():
            await transport.handlers["on_client_disconnected"](transport, None)
        closed.cancel()
        await cancelled


async def parse_telephony_websocket(websocket):
    return "twilio", {"stream_id": "MZ1", "call_id": websocket.sid}


anything = lambda *_, **__: None  # noqa: E731
module("fastapi", FastAPI=FastAPI, WebSocket=WebSocket)
module("uvicorn", run=Uvicorn().run)
module("pipecat.pipeline.pipeline", Pipeline=list)
module("pipecat.pipeline.runner", PipelineRunner=PipelineRunner)
module("pipecat.pipeline.task", PipelineTask=PipelineTask)
module("pipecat.runner.utils", parse_telephony_websocket=parse_telephony_websocket)
module("pipecat.serializers.twilio", TwilioFrameSerializer=anything)
module(
    "pipecat.transports.websocket.fastapi",
    FastAPIWebsocketParams=anything,
    FastAPIWebsocketTransport=Transport,
)


# --- LiveKit ---


class AgentServer:
    def rtc_session(self, agent_name):
        self.agent_name = agent_name

        def register(function):
            self.entrypoint = function
            return function

        return register


class JobContext:
    def __init__(self, metadata):
        self.job = types.SimpleNamespace(metadata=metadata)
        self.room = None
        self.callbacks = []
        self.ended = asyncio.Event()

    def add_shutdown_callback(self, callback):
        self.callbacks.append(callback)

    def shutdown(self, reason=""):
        say("shutdown", reason=reason)
        self.ended.set()

    async def connect(self):
        pass


class AgentSession:
    async def start(self, agent, room):
        """The session goes on after this returns."""


def run_worker(server):
    asyncio.run(work(server))


async def work(server):
    jobs = {}
    tasks = set()

    def spawn(coroutine):
        task = asyncio.get_running_loop().create_task(coroutine)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    class Dispatch:
        async def create_dispatch(self, request):
            if request.agent_name == server.agent_name:
                spawn(run_job(request.metadata))

    async def run_job(metadata):
        sid = json.loads(metadata)["call_sid"]
        jobs[sid] = context = JobContext(metadata)
        await server.entrypoint(context)
        say("talking", call=sid)
        await context.ended.wait()
        for callback in context.callbacks:
            await callback()
        say("ended", call=sid)

    lkapi = types.SimpleNamespace(agent_dispatch=Dispatch())
    router = example.connect()

    def handle(name, sid):
        if name == "connect":
            spawn(example.dispatch_call(router, lkapi, sid, f"room-{sid}"))
        else:
            jobs[sid].shutdown("hung up")

    await read_commands(handle)
    say("started")
    await asyncio.Event().wait()


class CreateAgentDispatchRequest(types.SimpleNamespace):
    pass


module("livekit.api", CreateAgentDispatchRequest=CreateAgentDispatchRequest)
module(
    "livekit.agents",
    Agent=anything,
    AgentServer=AgentServer,
    AgentSession=AgentSession,
    JobContext=JobContext,
    cli=types.SimpleNamespace(run_app=run_worker),
)

# --- Run it ---

spec = importlib.util.spec_from_file_location("example", sys.argv[1])
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
main = inspect.getsource(example).split('if __name__ == "__main__":')[1]
exec(inspect.cleandoc(main), vars(example))
