"""A LiveKit worker behind Smart Router: `python livekit_worker.py start`. The lines for the router are marked with (*).

The worker registers under the name of its pod, and telephony code dispatches each call to the pod that the router chose,
with the call SID and the fence as metadata: see dispatch_call below. LiveKit runs each job in a process of its own, so a
job renews its own call; a report would have to name all calls of the pod.
"""

import asyncio
import json
import os

from livekit import api
from livekit.agents import Agent, AgentServer, AgentSession, JobContext, cli

from smart_router import AsyncRouter  # (*)

server = AgentServer()


def connect():  # (*)
    return AsyncRouter(os.environ["SMART_ROUTER_URL"], api_key=os.environ.get("SMART_ROUTER_API_KEY"))


@server.rtc_session(agent_name=os.environ["POD_NAME"])  # (*) one name per pod
async def entrypoint(ctx: JobContext):
    job = json.loads(ctx.job.metadata)
    router = connect()  # (*)
    call = router.call(job["call_sid"], job["fence"])  # (*)
    call.keep_alive()  # (*) renews in the background

    async def stop_when_lost():  # (*) the router gave the call to another pod, or it has ended
        ctx.shutdown(reason=str(await call.wait_lost()))

    watcher = asyncio.create_task(stop_when_lost())  # (*)

    async def hang_up():  # (*) the session outlives this function: LiveKit calls this at its end
        watcher.cancel()
        await call.release()
        await router.close()

    ctx.add_shutdown_callback(hang_up)  # (*)

    await ctx.connect()
    session = AgentSession()
    await session.start(agent=Agent(instructions="You are a friendly voice agent."), room=ctx.room)


async def dispatch_call(router, lkapi, call_sid, room):
    """Telephony code: gets a pod from the router and sends the call's job to the worker on that pod."""
    call = await router.allocate(call_sid, provider="livekit")  # (*)
    await lkapi.agent_dispatch.create_dispatch(
        api.CreateAgentDispatchRequest(
            agent_name=call.pod_name,
            room=room,
            metadata=json.dumps({"call_sid": call_sid, "fence": call.fence}),
        )
    )
    return call


if __name__ == "__main__":
    cli.run_app(server)
