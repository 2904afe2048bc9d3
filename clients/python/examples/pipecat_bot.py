"""A Pipecat bot for Twilio behind Smart Router: `python pipecat_bot.py`. The lines for the router are marked with (*).

It expects SMART_ROUTER_URL, SMART_ROUTER_API_KEY and POD_NAME in its environment, and answers at the path of the router's
WS_URL_TEMPLATE={base}/ws/pod/{pod}.
"""

import asyncio
import os
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, WebSocket
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineTask
from pipecat.runner.utils import parse_telephony_websocket
from pipecat.serializers.twilio import TwilioFrameSerializer
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport

from smart_router import AsyncAgent, AsyncRouter  # (*)

sessions = {}


def stop_lost_call(call_sid, error):  # (*) the router gave the call to another pod, or it has ended
    if call_sid in sessions:
        asyncio.create_task(sessions[call_sid].cancel())


@asynccontextmanager
async def lifespan(app):
    router = AsyncRouter(os.environ["SMART_ROUTER_URL"], api_key=os.environ.get("SMART_ROUTER_API_KEY"))  # (*)
    app.state.agent = AsyncAgent(  # (*) reports from now on
        router,
        pod_name=os.environ["POD_NAME"],
        uid=os.environ.get("POD_UID"),
        interval=float(os.environ.get("REPORT_SECONDS", "10")),
        on_lost=stop_lost_call,
    )
    app.state.agent.drain_on_sigterm(wait=3600)  # (*) SIGTERM reaches the server after the last call
    yield
    await router.close()  # (*)


app = FastAPI(lifespan=lifespan)


@app.websocket("/ws/pod/{pod}")
async def answer(websocket: WebSocket):
    await websocket.accept()
    _, call_data = await parse_telephony_websocket(websocket)
    async with app.state.agent.call(call_data["call_id"]):  # (*) released at the end of the block
        await run_bot(websocket, call_data)


async def run_bot(websocket, call_data):
    serializer = TwilioFrameSerializer(stream_sid=call_data["stream_id"], call_sid=call_data["call_id"])
    transport = FastAPIWebsocketTransport(websocket, FastAPIWebsocketParams(serializer=serializer))
    # Your speech-to-text, language model and text-to-speech go between these two.
    task = PipelineTask(Pipeline([transport.input(), transport.output()]))

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(transport, client):
        await task.cancel()

    sessions[call_data["call_id"]] = task  # (*)
    try:
        await PipelineRunner(handle_sigint=False).run(task)
    finally:
        sessions.pop(call_data["call_id"], None)  # (*)


if __name__ == "__main__":
    uvicorn.run(app, host="0.0.0.0", port=8081)
