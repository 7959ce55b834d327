"""An agent in plain durable functions: what the SDK and the engine take by themselves, without this project.

A request starts an orchestration and waits for its end; one activity runs the agent. With ``PLAIN_ENTITY`` in the
environment, an entity is called before and after it, as for a session that admits a turn and keeps it. Nothing else is
done: there is no journal, no stream to clients, no conversation, no retry.
"""

import asyncio
import json
import os
import sys
import uuid
from collections.abc import Generator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import azure.durable_functions as df
import azure.functions as func
from agent_framework import AgentSession
from agents import long_agents
from azurefunctions.extensions.http.fastapi import Request, Response

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
_agents: dict[str, Any] = {str(agent.name): agent for agent in long_agents()}
_ends: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Event]] = {}


@app.route(route="agents/{agent}/run", methods=["POST"])
@app.durable_client_input(client_name="client")
async def run(req: Request, client: df.DurableOrchestrationClient) -> Response:
    """Run one turn and answer with the model's text; is notified of the end, as polling would take longer."""
    turn_id = uuid.uuid4().hex
    end = asyncio.Event()
    _ends[turn_id] = (asyncio.get_running_loop(), end)
    asked = {"agent": req.path_params["agent"], "text": (await req.body()).decode()}
    await client.start_new("turn", turn_id, asked)
    await end.wait()
    del _ends[turn_id]
    while True:
        status: Any = await client.get_status(turn_id)
        if status.runtime_status is df.OrchestrationRuntimeStatus.Completed:
            return Response(json.dumps({"response": status.output}), media_type="application/json")
        await asyncio.sleep(0)


@app.orchestration_trigger(context_name="context")
def turn(context: df.DurableOrchestrationContext) -> Generator[Any, Any, str]:
    """Run the agent between two calls of the entity, or alone."""
    asked: Any = context.get_input()
    entity = df.EntityId("conversation", context.instance_id)
    if os.environ.get("PLAIN_ENTITY"):
        yield context.call_entity(entity, "admit", asked)
    answer = yield context.call_activity("answer", asked)
    if os.environ.get("PLAIN_ENTITY"):
        yield context.call_entity(entity, "commit", answer)
    loop, end = _ends[context.instance_id]
    loop.call_soon_threadsafe(end.set)
    return answer


@app.activity_trigger(input_name="asked")
async def answer(asked: dict) -> str:
    """Run the agent, as `bare.py` does."""
    stream = _agents[asked["agent"]].run(asked["text"], stream=True, session=AgentSession())
    async for _ in stream:
        pass
    return (await stream.get_final_response()).text


@app.entity_trigger(context_name="context")
def conversation(context: df.DurableEntityContext) -> None:
    """Keep what it is given."""
    kept: Any = context.get_state(list[Any])
    context.set_state([*kept, context.get_input()])
    context.set_result(len(kept))
