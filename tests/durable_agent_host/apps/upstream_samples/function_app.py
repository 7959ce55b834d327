"""What upstream's samples 01 to 08 do, in one app: only the app's class is another one.

Agents with and without tools, a callback with a streaming route of its own, orchestrations that chain agents, run them
at once, branch on what they say and wait for a person, and agents as MCP tools.
"""

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import azure.functions as func
from agent_framework import Agent
from agent_framework_durabletask import AgentCallbackContext, AgentResponseCallbackProtocol
from agent_framework_openai import OpenAIChatClient
from pydantic import BaseModel

if os.environ.get("HOST_CLASS") == "upstream":
    from agent_framework_azurefunctions import AgentFunctionApp
else:
    from durable_agent_host import DurableAgentApp as AgentFunctionApp

STREAM_FILE = Path(os.environ["LEDGER"])


class Verdict(BaseModel):
    """What the guard says of a letter."""

    is_spam: bool
    reason: str


class Draft(BaseModel):
    """What the writer hands in."""

    title: str
    content: str


class Follower(AgentResponseCallbackProtocol):
    """Writes what agents stream to a file, which a route of the app reads."""

    async def on_streaming_response_update(self, update: Any, context: AgentCallbackContext) -> None:
        """Note a fragment of text."""
        texts = [
            content.text for content in update.contents if content.type == "text" and content.merge_mode != "replace"
        ]
        if text := "".join(texts):  # the framework's client says each text once more when it is whole
            self._write(context, {"text": text})

    async def on_agent_response(self, response: Any, context: AgentCallbackContext) -> None:
        """Note the end."""
        self._write(context, {"done": response.text})

    def _write(self, context: AgentCallbackContext, fields: dict[str, Any]) -> None:
        with STREAM_FILE.open("a") as file:
            file.write(json.dumps({"agent": context.agent_name, "thread": context.thread_id} | fields) + "\n")


def weather_of(place: str) -> dict[str, Any]:
    """Tell the weather of a place."""
    return {"place": place, "degrees": 21}


def tip(bill: float, percent: float) -> dict[str, float]:
    """Calculate a tip."""
    return {"tip": bill * percent / 100}


client = OpenAIChatClient(
    model=os.environ["OPENAI_MODEL"], api_key=os.environ["OPENAI_API_KEY"], base_url=os.environ["OPENAI_BASE_URL"]
)
app = AgentFunctionApp(
    agents=[
        Agent(client, "You tell jokes.", name="Joker"),
        Agent(client, "You know weather.", name="WeatherAgent", tools=[weather_of]),
        Agent(client, "You calculate.", name="MathAgent", tools=[tip]),
        Agent(client, "You write.", name="WriterAgent"),
        Agent(client, "You know physics.", name="PhysicistAgent"),
        Agent(client, "You know chemistry.", name="ChemistAgent"),
        Agent(client, "You detect spam.", name="SpamDetectionAgent"),
    ],
    enable_health_check=True,
    max_poll_retries=100,
    poll_interval_seconds=0.5,
    default_callback=Follower(),
)
app.add_agent(Agent(client, "You advise on stock.", name="StockAdvisor"), enable_mcp_tool_trigger=True)
app.add_agent(
    Agent(client, "You advise on plants.", name="PlantAdvisor", description="Get plant recommendations."),
    enable_http_endpoint=False,
    enable_mcp_tool_trigger=True,
)


@app.function_name("stream")
@app.route(route="agent/stream/{conversation_id}", methods=["GET"])
async def stream(req: func.HttpRequest) -> func.HttpResponse:
    """Give what was streamed in a conversation, from a cursor on."""
    thread, after = req.route_params["conversation_id"], int(req.params.get("cursor") or -1)
    lines = [line for line in map(json.loads, STREAM_FILE.read_text().splitlines()) if line["thread"] == thread]
    events = [
        f"id: {n}\nevent: {'done' if 'done' in line else 'message'}\ndata: {line.get('text', '[DONE]')}\n\n"
        for n, line in enumerate(lines)
        if n > after
    ]
    return func.HttpResponse("".join(events), mimetype="text/event-stream", headers={"x-conversation-id": thread})


@app.orchestration_trigger(context_name="context")
def chain(context):
    """One agent, twice, in one session."""
    writer = app.get_agent(context, "WriterAgent")
    session = writer.create_session()
    first = yield writer.run(messages="Write a sentence on learning.", session=session)
    second = yield writer.run(messages=f"Improve this: {first.text}", session=session)
    return second.text


@app.orchestration_trigger(context_name="context")
def both(context):
    """Two agents at once."""
    prompt = context.get_input()
    physicist, chemist = app.get_agent(context, "PhysicistAgent"), app.get_agent(context, "ChemistAgent")
    tasks = [agent.run(messages=str(prompt), session=agent.create_session()) for agent in (physicist, chemist)]
    responses = yield context.task_all(tasks)
    return {"physicist": responses[0].text, "chemist": responses[1].text}


@app.activity_trigger(input_name="reason")
def handle_spam(reason: str) -> str:
    """File a letter as spam."""
    return f"Email marked as spam: {reason}"


@app.activity_trigger(input_name="message")
def send_letter(message: str) -> str:
    """Send a letter."""
    return f"Email sent: {message}"


@app.orchestration_trigger(context_name="context")
def sort_letter(context):
    """Ask for a structured verdict, and go one way or the other."""
    letter = context.get_input()
    guard, writer = app.get_agent(context, "SpamDetectionAgent"), app.get_agent(context, "WriterAgent")
    response = yield guard.run(
        messages=f"Spam? {letter['content']}", session=guard.create_session(), options={"response_format": Verdict}
    )
    verdict = response.value
    if verdict.is_spam:
        return (yield context.call_activity("handle_spam", verdict.reason))
    reply = yield writer.run(
        messages=f"Reply to: {letter['content']}", session=writer.create_session(), options={"response_format": Draft}
    )
    return (yield context.call_activity("send_letter", reply.value.content))


@app.activity_trigger(input_name="content")
def publish(content: dict) -> None:
    """Publish an article."""
    with STREAM_FILE.open("a") as file:
        file.write(json.dumps({"agent": "-", "thread": "-", "published": content}) + "\n")


@app.orchestration_trigger(context_name="context")
def reviewed(context):
    """Write until a person approves, has no patience left, or does not answer."""
    request = context.get_input()
    writer = app.get_agent(context, "WriterAgent")
    session, form = writer.create_session(), {"response_format": Draft}
    response = yield writer.run(messages=f"Write about {request['topic']}.", session=session, options=form)
    for attempt in range(request["attempts"]):
        context.set_custom_status(f"Requesting human feedback. Iteration #{attempt + 1}.")
        event = context.wait_for_external_event("HumanApproval")
        timer = context.create_timer(context.current_utc_datetime + timedelta(seconds=request["seconds"]))
        winner = yield context.task_any([event, timer])
        if winner != event:
            raise TimeoutError("Human approval timed out.")
        timer.cancel()
        answer = json.loads(event.result) if isinstance(event.result, str) else event.result
        if answer["approved"]:
            yield context.call_activity("publish", response.value.model_dump())
            context.set_custom_status("Content published.")
            return {"content": response.value.content}
        response = yield writer.run(messages=f"Rewrite: {answer['feedback']}", session=session, options=form)
    raise RuntimeError("Content could not be approved.")


@app.route(route="start/{name}", methods=["POST"])
@app.durable_client_input(client_name="client")
async def start(req: func.HttpRequest, client: Any) -> func.HttpResponse:
    """Start an orchestration."""
    instance = await client.start_new(req.route_params["name"], client_input=req.get_json())
    base = req.url.partition("/api/")[0]
    body = {"instanceId": instance, "statusQueryGetUri": f"{base}/api/status/{instance}"}
    return func.HttpResponse(json.dumps(body), status_code=202, mimetype="application/json")


@app.route(route="status/{instance}", methods=["GET"])
@app.durable_client_input(client_name="client")
async def status(req: func.HttpRequest, client: Any) -> func.HttpResponse:
    """Tell how an orchestration stands."""
    now = await client.get_status(req.route_params["instance"], show_input=True)
    if now is None or now.runtime_status is None:
        return func.HttpResponse('{"error": "Instance not found."}', status_code=404)
    body = {"runtimeStatus": now.runtime_status.name, "workflowStatus": now.custom_status, "output": now.output}
    return func.HttpResponse(json.dumps(body), mimetype="application/json")


@app.route(route="approve/{instance}", methods=["POST"])
@app.durable_client_input(client_name="client")
async def approve(req: func.HttpRequest, client: Any) -> func.HttpResponse:
    """Send a person's decision."""
    await client.raise_event(req.route_params["instance"], "HumanApproval", req.get_json())
    return func.HttpResponse('{"message": "Human approval sent."}', mimetype="application/json")
