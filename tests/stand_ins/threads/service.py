"""The Azure AI Agents service: agents, threads, messages, runs with their steps, files; below ``/agents``.

The events of a run are generated when it is created. They contain its full state, which the service stores when the
stream was sent completely, or after the run was polled a few times: a run continues after its reader has disconnected.
For tests: ``/practice/agents/expire`` (POST) expires the runs that wait for tool outputs or approvals.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import ParsedRequest
from practice_model.exchange import EventStream, Exchange, JsonResponse, SharedState, encode_json
from practice_model.play.answer import FakeResponse
from practice_model.play.player import Player
from tests.stand_ins.threads import objects, rules
from tests.stand_ins.threads.run_events import RunScript
from tests.stand_ins.threads.store import (
    AgentStore,
    RejectedError,
    StoredRun,
    StoredThread,
    find_or_reject,
    now,
    paginate,
    with_outputs,
)

_POLLS_UNTIL_COMPLETE = 2
"""Number of polls after which a run without a reader has ended."""
_DONE = b"event: done\ndata: [DONE]\n\n"


class AgentsService:
    """The routes and their state."""

    def __init__(self, shared_state: SharedState) -> None:
        self._shared_state = shared_state
        self._id_generator = shared_state.id_generator
        self._store = AgentStore(shared_state.id_generator)
        self._player = Player(shared_state.id_generator, shared_state.plans)

    def routes(self) -> list[Route]:
        """List the routes."""
        thread_path = "/agents/threads/{thread}"
        run_path = "/agents/threads/{thread}/runs/{run}"
        table: list[tuple[str, str, Callable[[Request, Exchange], ASGIApp]]] = [
            ("GET", "/agents/assistants", self.list_agents),
            ("POST", "/agents/assistants", self.create_agent),
            ("GET", "/agents/assistants/{agent}", self.read_agent),
            ("GET", "/agents/threads", self.list_threads),
            ("POST", "/agents/threads", self.create_thread),
            ("DELETE", thread_path, self.delete_thread),
            ("GET", f"{thread_path}/messages", self.list_messages),
            ("POST", f"{thread_path}/messages", self.post_message),
            ("GET", f"{thread_path}/messages/{{message}}", self.read_message),
            ("GET", f"{thread_path}/runs", self.list_runs),
            ("POST", f"{thread_path}/runs", self.create_run),
            ("GET", run_path, self.read_run),
            ("POST", f"{run_path}/cancel", self.cancel_run),
            ("POST", f"{run_path}/submit_tool_outputs", self.submit_tool_outputs),
            ("GET", f"{run_path}/steps", self.list_steps),
            ("GET", "/agents/files/{file}", self.read_file),
            ("GET", "/agents/files/{file}/content", self.read_content),
        ]
        exchange_routes = [
            Route(path, self._build_handler(handler), methods=[method]) for method, path, handler in table
        ]
        return [
            *exchange_routes,
            Route("/agents/files", self.upload, methods=["POST"]),
            Route("/practice/agents/expire", self.expire, methods=["POST"]),
        ]

    def _build_handler(self, handler: Callable[[Request, Exchange], ASGIApp]) -> Any:
        async def serve(request: Request) -> ASGIApp:
            exchange = await Exchange.start(request, self._shared_state.request_log)
            if not (request.headers.get("authorization") or request.headers.get("api-key")):
                return exchange.reject(HttpError(401, "Access denied due to missing credentials."))
            try:
                return handler(request, exchange)
            except RejectedError as rejection:
                return exchange.reject(rejection.error)

        return serve

    def _find_thread(self, request: Request) -> StoredThread:
        thread_id = request.path_params["thread"]
        return find_or_reject(self._store.threads, thread_id, "thread")

    def _find_run(self, request: Request) -> tuple[StoredThread, StoredRun]:
        thread = self._find_thread(request)
        return thread, find_or_reject(thread.runs, request.path_params["run"], "run")

    def list_agents(self, request: Request, exchange: Exchange) -> ASGIApp:
        """List the agents."""
        return exchange.respond(paginate(request, list(self._store.agents.values())))

    def create_agent(self, request: Request, exchange: Exchange) -> ASGIApp:
        """Create an agent."""
        del request
        agent = objects.build_agent(self._store.new_id("asst"), exchange.body or {}, now())
        self._store.agents[agent["id"]] = agent
        return exchange.respond(agent)

    def read_agent(self, request: Request, exchange: Exchange) -> ASGIApp:
        """Read an agent."""
        return exchange.respond(find_or_reject(self._store.agents, request.path_params["agent"], "assistant"))

    def list_threads(self, request: Request, exchange: Exchange) -> ASGIApp:
        """List the threads."""
        return exchange.respond(paginate(request, [thread.json_object for thread in self._store.threads.values()]))

    def create_thread(self, request: Request, exchange: Exchange) -> ASGIApp:
        """Create a thread, with messages."""
        del request
        body: Json = exchange.body or {}
        thread = StoredThread(objects.build_thread(self._store.new_id("thread"), body, now()))
        for message in cast("list[Json]", body.get("messages") or []):
            if violation := rules.check_message(message, thread.json_object["id"], None):
                raise RejectedError(violation)
            self._store.add_message(thread, message)
        self._store.threads[thread.json_object["id"]] = thread
        return exchange.respond(thread.json_object)

    def delete_thread(self, request: Request, exchange: Exchange) -> ASGIApp:
        """Delete a thread."""
        thread_id = self._find_thread(request).json_object["id"]
        del self._store.threads[thread_id]
        return exchange.respond({"id": thread_id, "object": "thread.deleted", "deleted": True})

    def list_messages(self, request: Request, exchange: Exchange) -> ASGIApp:
        """List the messages of a thread."""
        return exchange.respond(paginate(request, self._find_thread(request).messages))

    def post_message(self, request: Request, exchange: Exchange) -> ASGIApp:
        """Add a message to a thread."""
        thread = self._find_thread(request)
        if violation := rules.check_message(exchange.body, thread.json_object["id"], thread.active_run_id):
            raise RejectedError(violation)
        return exchange.respond(self._store.add_message(thread, exchange.body))

    def read_message(self, request: Request, exchange: Exchange) -> ASGIApp:
        """Read a message."""
        messages_by_id = {message["id"]: message for message in self._find_thread(request).messages}
        return exchange.respond(find_or_reject(messages_by_id, request.path_params["message"], "message"))

    def list_runs(self, request: Request, exchange: Exchange) -> ASGIApp:
        """List the runs of a thread."""
        return exchange.respond(
            paginate(request, [run.json_object for run in self._find_thread(request).runs.values()])
        )

    def create_run(self, request: Request, exchange: Exchange) -> ASGIApp:
        """Create a run, streamed or not."""
        thread = self._find_thread(request)
        if violation := rules.check_new_run(
            exchange.body, self._store.agents, thread.json_object["id"], thread.active_run_id
        ):
            raise RejectedError(violation)
        body: Json = exchange.body
        run_object = objects.build_run(
            self._store.new_id("run"), thread.json_object["id"], body, self._store.agents[body["assistant_id"]], now()
        )
        run = StoredRun(run_object)
        fake_response = self._generate(thread, run)
        thread.runs[run_object["id"]] = run
        script = RunScript(run_object, self._id_generator, now(), fake_response.delivery.chunk_characters)
        script.start()
        return self._deliver((thread, run), script, fake_response, request, exchange)

    def _generate(self, thread: StoredThread, run: StoredRun) -> FakeResponse:
        """Return the model's next response."""
        tools = [{**tool, **tool.get("function", {})} for tool in run.json_object["tools"]]
        body = {
            "model": run.json_object["model"],
            "instructions": run.json_object["instructions"],
            "tools": tools,
            "stream": True,
            "include": ["code_interpreter_call.outputs"],
            "tool_choice": run.json_object["tool_choice"],
        }
        if run.remaining_items:
            items = run.remaining_items
            run.remaining_items = []
            return FakeResponse(items)
        fake_response = self._player.respond(ParsedRequest(body, thread.transcript))
        if isinstance(fake_response, HttpError):
            raise RejectedError(fake_response)
        return fake_response

    def _deliver(
        self,
        thread_and_run: tuple[StoredThread, StoredRun],
        script: RunScript,
        fake_response: FakeResponse,
        request: Request,
        exchange: Exchange,
    ) -> ASGIApp:
        """Send the events of a run, and apply them once they were sent."""
        thread, run = thread_and_run
        items = [self._store.store_files(item) for item in fake_response.items]
        last_index = next((index for index, item in enumerate(items) if item.get("approval")), len(items) - 1)
        items, run.remaining_items = items[: last_index + 1], items[last_index + 1 :]
        script.play_items(items)
        usage = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30, **(fake_response.usage or {})}
        script.complete(fake_response.failure, fake_response.incomplete, usage)
        thread.transcript += items
        run.approved_outputs = {item["name"]: item.get("output") for item in items if item.get("approval")}
        run.outputs |= script.outputs
        run.pending_events = script.events
        run.remaining_polls = None
        run.json_object = {**run.json_object, "status": "in_progress"}
        exchange.response_id = run.json_object["id"]
        exchange.output = items
        body: Json = exchange.body
        if not body.get("stream"):
            run.remaining_polls = _POLLS_UNTIL_COMPLETE
            return exchange.respond(script.events[0]["data"])

        def on_end(outcome: str, event_count: int, sent_at: Sequence[float]) -> None:
            run.remaining_polls = _POLLS_UNTIL_COMPLETE
            if outcome == "complete":
                self._store.apply_run_events(thread, run)
            exchange.record_end(outcome, event_count, sent_at)

        typed_events = [{**event, "type": event["event"]} for event in script.events]
        return EventStream(typed_events, fake_response.delivery, request, on_end, _encode_event, terminator=_DONE)

    def read_run(self, request: Request, exchange: Exchange) -> ASGIApp:
        """Read a run; without a reader of its stream, it ends after a few polls."""
        thread, run = self._find_run(request)
        if run.pending_events and run.remaining_polls is not None:
            run.remaining_polls -= 1
            if run.remaining_polls <= 0:
                self._store.apply_run_events(thread, run)
        return exchange.respond(run.json_object)

    def cancel_run(self, request: Request, exchange: Exchange) -> ASGIApp:
        """Cancel a run."""
        _, run = self._find_run(request)
        if run.json_object["status"] not in rules.ACTIVE:
            raise RejectedError(HttpError(400, f"Cannot cancel run with status '{run.json_object['status']}'."))
        run.json_object = {**run.json_object, "status": "cancelled", "cancelled_at": now(), "required_action": None}
        run.pending_events = []
        return exchange.respond({**run.json_object, "status": "cancelling"})

    def submit_tool_outputs(self, request: Request, exchange: Exchange) -> ASGIApp:
        """Accept the results or approvals for which a run waits, and continue it."""
        thread, run = self._find_run(request)
        if violation := rules.check_tool_outputs(exchange.body, run.json_object):
            raise RejectedError(violation)
        body: Json = exchange.body
        tool_outputs: list[Json] = body.get("tool_outputs") or []
        outputs: dict[str, Any] = {
            tool_output["tool_call_id"]: tool_output.get("output") for tool_output in tool_outputs
        }
        for call_id, output in outputs.items():
            thread.transcript.append({"type": "function_call_output", "call_id": call_id, "output": output})
        step = next(step for step in reversed(run.steps.values()) if step["status"] == "in_progress")
        names = {call["id"]: call.get("name") for call in step["step_details"]["tool_calls"]}
        approvals: list[Json] = body.get("tool_approvals") or []
        for approval in approvals:
            call_id = approval["tool_call_id"]
            output = run.approved_outputs.get(str(names[call_id])) if approval["approve"] else "The call was denied."
            outputs[call_id] = output
        fake_response = self._generate(thread, run)
        script = RunScript(run.json_object, self._id_generator, now(), fake_response.delivery.chunk_characters)
        script.complete_calls(step, outputs)
        for call_id, output in outputs.items():
            if names[call_id]:  # hosted tools: listed steps have outputs that came after the step's end
                run.outputs[call_id] = output
        return self._deliver((thread, run), script, fake_response, request, exchange)

    def list_steps(self, request: Request, exchange: Exchange) -> ASGIApp:
        """List the steps of a run, with the outputs of code."""
        _, run = self._find_run(request)
        steps_by_id = dict(run.steps)
        for event in run.pending_events:
            if event["event"].startswith("thread.run.step.") and not event["event"].endswith("delta"):
                steps_by_id[event["data"]["id"]] = event["data"]
        return exchange.respond(paginate(request, [with_outputs(step, run.outputs) for step in steps_by_id.values()]))

    async def upload(self, request: Request) -> ASGIApp:
        """Accept an uploaded file."""
        async with request.form() as form:
            uploaded_file: Any = form["file"]
            data = await uploaded_file.read()
            purpose = str(form.get("purpose"))
            return JsonResponse(
                self._store.add_file(self._store.new_id("assistant"), uploaded_file.filename, data, purpose)
            )

    def read_file(self, request: Request, exchange: Exchange) -> ASGIApp:
        """Read the description of a file."""
        return exchange.respond(find_or_reject(self._store.files, request.path_params["file"], "file")[0])

    def read_content(self, request: Request, exchange: Exchange) -> ASGIApp:
        """Download a file."""
        data = find_or_reject(self._store.files, request.path_params["file"], "file")[1]
        exchange.record_end("complete", 0, ())
        return Response(data, media_type="application/octet-stream")

    async def expire(self, _request: Request) -> ASGIApp:
        """Expire the runs that wait for the client, as after ten minutes."""
        waiting_runs = [
            run
            for thread in self._store.threads.values()
            for run in thread.runs.values()
            if run.json_object["status"] == "requires_action"
        ]
        for run in waiting_runs:
            run.json_object = {**run.json_object, "status": "expired", "required_action": None}
        return JsonResponse({"expired": len(waiting_runs)})


def _encode_event(event: Json) -> bytes:
    return b"event: " + str(event["event"]).encode() + b"\ndata: " + encode_json(event["data"]) + b"\n\n"
