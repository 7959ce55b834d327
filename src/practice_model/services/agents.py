"""The Azure AI Agents service: agents, threads, messages, runs with their steps, files; below ``/agents``.

A run is played when it is made. Its events tell all that is to know, so what the service keeps of it is read from them:
at once when the stream was sent whole, else when the run was looked at a few times, as a run goes on when its reader
has left. For tests: ``/practice/agents/expire`` (POST) lets the runs expire that wait.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from practice_model.dialects.agents import objects
from practice_model.dialects.agents.run_events import RunScript
from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import Reading
from practice_model.event_stream import EventStream
from practice_model.exchange import Exchange, Shared
from practice_model.json_text import JsonAnswer, encode_json
from practice_model.play.agent_recordings import AgentRecordings, as_run
from practice_model.play.answer import Answer
from practice_model.play.plans import PlanError
from practice_model.play.player import Player
from practice_model.rules import threads as rules
from practice_model.services.agent_store import (
    AgentStore,
    RefusedError,
    StoredRun,
    StoredThread,
    found,
    now,
    page,
    with_outputs,
)

_LOOKS = 2
"""How often a run whose reader has left is looked at before it has ended."""
_DONE = b"event: done\ndata: [DONE]\n\n"


class AgentsService:
    """The routes and their state."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._mint = shared.mint
        self._store = AgentStore(shared.mint)
        recordings = AgentRecordings(shared.recordings_folder)
        self._player = Player(shared.mint, cast("Any", recordings), shared.plans)

    def routes(self) -> list[Route]:
        """List the routes."""
        thread, run = "/agents/threads/{thread}", "/agents/threads/{thread}/runs/{run}"
        table: list[tuple[str, str, Callable[[Request, Exchange], ASGIApp]]] = [
            ("GET", "/agents/assistants", self.list_agents),
            ("POST", "/agents/assistants", self.create_agent),
            ("GET", "/agents/assistants/{agent}", self.read_agent),
            ("GET", "/agents/threads", self.list_threads),
            ("POST", "/agents/threads", self.create_thread),
            ("GET", thread, self.read_thread),
            ("DELETE", thread, self.delete_thread),
            ("GET", f"{thread}/messages", self.list_messages),
            ("POST", f"{thread}/messages", self.post_message),
            ("GET", f"{thread}/messages/{{message}}", self.read_message),
            ("GET", f"{thread}/runs", self.list_runs),
            ("POST", f"{thread}/runs", self.create_run),
            ("GET", run, self.read_run),
            ("POST", f"{run}/cancel", self.cancel_run),
            ("POST", f"{run}/submit_tool_outputs", self.submit),
            ("GET", f"{run}/steps", self.list_steps),
            ("GET", f"{run}/steps/{{step}}", self.read_step),
            ("GET", "/agents/files/{file}", self.read_file),
            ("GET", "/agents/files/{file}/content", self.read_content),
        ]
        made = [Route(path, self._served(handler), methods=[method]) for method, path, handler in table]
        return [
            *made,
            Route("/agents/files", self.upload, methods=["POST"]),
            Route("/practice/agents/expire", self.expire, methods=["POST"]),
        ]

    def _served(self, handler: Callable[[Request, Exchange], ASGIApp]) -> Any:
        async def serve(request: Request) -> ASGIApp:
            call = await Exchange.begin(request, self._shared.request_log)
            if not (request.headers.get("authorization") or request.headers.get("api-key")):
                return call.refuse(401, HttpError(401, "Access denied due to missing credentials.").body)
            try:
                return handler(request, call)
            except RefusedError as refused:
                return call.refuse(refused.error.status, refused.error.body, refused.error.retry_after)

        return serve

    def _thread(self, request: Request) -> StoredThread:
        thread_id = request.path_params["thread"]
        return found(self._store.threads, thread_id, "thread")

    def _run(self, request: Request) -> tuple[StoredThread, StoredRun]:
        thread = self._thread(request)
        return thread, found(thread.runs, request.path_params["run"], "run")

    def list_agents(self, request: Request, call: Exchange) -> ASGIApp:
        """List the agents."""
        return call.answer(page(request, list(self._store.agents.values())))

    def create_agent(self, request: Request, call: Exchange) -> ASGIApp:
        """Create an agent."""
        del request
        agent = objects.agent(self._store.new_id("asst"), call.body or {}, now())
        self._store.agents[agent["id"]] = agent
        return call.answer(agent)

    def read_agent(self, request: Request, call: Exchange) -> ASGIApp:
        """Read an agent."""
        return call.answer(found(self._store.agents, request.path_params["agent"], "assistant"))

    def list_threads(self, request: Request, call: Exchange) -> ASGIApp:
        """List the threads."""
        return call.answer(page(request, [one.shown for one in self._store.threads.values()]))

    def create_thread(self, request: Request, call: Exchange) -> ASGIApp:
        """Create a thread, with messages."""
        del request
        body: Json = call.body or {}
        thread = StoredThread(objects.thread(self._store.new_id("thread"), body, now()))
        for posted in cast("list[Json]", body.get("messages") or []):
            if refused := rules.check_message(posted, thread.shown["id"], None):
                raise RefusedError(refused)
            self._store.post(thread, posted)
        self._store.threads[thread.shown["id"]] = thread
        return call.answer(thread.shown)

    def read_thread(self, request: Request, call: Exchange) -> ASGIApp:
        """Read a thread."""
        return call.answer(self._thread(request).shown)

    def delete_thread(self, request: Request, call: Exchange) -> ASGIApp:
        """Delete a thread."""
        thread_id = self._thread(request).shown["id"]
        del self._store.threads[thread_id]
        return call.answer({"id": thread_id, "object": "thread.deleted", "deleted": True})

    def list_messages(self, request: Request, call: Exchange) -> ASGIApp:
        """List the messages of a thread."""
        return call.answer(page(request, self._thread(request).messages))

    def post_message(self, request: Request, call: Exchange) -> ASGIApp:
        """Add a message to a thread."""
        thread = self._thread(request)
        if refused := rules.check_message(call.body, thread.shown["id"], thread.active):
            raise RefusedError(refused)
        return call.answer(self._store.post(thread, call.body))

    def read_message(self, request: Request, call: Exchange) -> ASGIApp:
        """Read a message."""
        by_id = {one["id"]: one for one in self._thread(request).messages}
        return call.answer(found(by_id, request.path_params["message"], "message"))

    def list_runs(self, request: Request, call: Exchange) -> ASGIApp:
        """List the runs of a thread."""
        return call.answer(page(request, [one.shown for one in self._thread(request).runs.values()]))

    def create_run(self, request: Request, call: Exchange) -> ASGIApp:
        """Make a run, streamed or not."""
        thread = self._thread(request)
        if refused := rules.check_new_run(call.body, self._store.agents, thread.shown["id"], thread.active):
            raise RefusedError(refused)
        body: Json = call.body
        shown = objects.run(
            self._store.new_id("run"), thread.shown["id"], body, self._store.agents[body["assistant_id"]], now()
        )
        run = StoredRun(shown)
        answer = self._answer(thread, run)
        thread.runs[shown["id"]] = run
        script = RunScript(shown, self._mint, now(), answer.delivery.chunk_characters)
        script.begins()
        return self._deliver((thread, run), script, answer, request, call)

    def _answer(self, thread: StoredThread, run: StoredRun) -> Answer:
        """Ask the player what the model says now."""
        tools = [{**tool, **tool.get("function", {})} for tool in run.shown["tools"]]
        body = {
            "model": run.shown["model"],
            "instructions": run.shown["instructions"],
            "tools": tools,
            "stream": True,
            "include": ["code_interpreter_call.outputs"],
            "tool_choice": run.shown["tool_choice"],
        }
        if run.rest:
            items, run.rest = run.rest, []
            return Answer(items)
        try:
            answer = self._player.answer(Reading(body, thread.transcript))
        except PlanError as error:
            raise RefusedError(HttpError(400, str(error), "practice_plan")) from error
        if isinstance(answer, HttpError):
            raise RefusedError(answer)
        return answer

    def _deliver(
        self, place: tuple[StoredThread, StoredRun], script: RunScript, answer: Answer, request: Request, call: Exchange
    ) -> ASGIApp:
        """Send the events of a run, and keep what they say when they were sent."""
        thread, run = place
        items = [self._store.kept(item) for item in answer.items]
        asking = next((n for n, item in enumerate(items) if item.get("approval")), len(items) - 1)
        items, run.rest = items[: asking + 1], items[asking + 1 :]
        if answer.recorded_events:
            script.events = as_run(answer.recorded_events, run.shown)
        else:
            script.plays(items)
            usage = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30, **(answer.usage or {})}
            script.ends(answer.failure, answer.incomplete, usage)
        thread.transcript += items
        run.after_approval = {item["name"]: item.get("output") for item in items if item.get("approval")}
        run.outputs |= script.outputs
        run.coming, run.looks = script.events, None
        run.shown = {**run.shown, "status": "in_progress"}
        call.response_id, call.output = run.shown["id"], items
        asked: Json = call.body
        if not asked.get("stream"):
            run.looks = _LOOKS
            return call.answer(script.events[0]["data"])

        def ended(how: str, events: int, sent_at: Sequence[float]) -> None:
            run.looks = _LOOKS
            if how == "complete":
                self._store.settle(thread, run)
            call.ended(how, events, sent_at)

        typed = [{**one, "type": one["event"]} for one in script.events]
        return EventStream(typed, answer.delivery, request, ended, _encode, last=_DONE)

    def read_run(self, request: Request, call: Exchange) -> ASGIApp:
        """Read a run; it ends after a few looks once nobody reads its stream."""
        thread, run = self._run(request)
        if run.coming and run.looks is not None:
            run.looks -= 1
            if run.looks <= 0:
                self._store.settle(thread, run)
        return call.answer(run.shown)

    def cancel_run(self, request: Request, call: Exchange) -> ASGIApp:
        """Cancel a run."""
        _, run = self._run(request)
        if run.shown["status"] not in rules.ACTIVE:
            raise RefusedError(HttpError(400, f"Cannot cancel run with status '{run.shown['status']}'."))
        run.shown = {**run.shown, "status": "cancelled", "cancelled_at": now(), "required_action": None}
        run.coming = []
        return call.answer({**run.shown, "status": "cancelling"})

    def submit(self, request: Request, call: Exchange) -> ASGIApp:
        """Take the answers to the calls for which a run waits, and go on."""
        thread, run = self._run(request)
        if refused := rules.check_answers(call.body, run.shown):
            raise RefusedError(refused)
        body: Json = call.body
        given: list[Json] = body.get("tool_outputs") or []
        outputs: dict[str, Any] = {one["tool_call_id"]: one.get("output") for one in given}
        for call_id, output in outputs.items():
            thread.transcript.append({"type": "function_call_output", "call_id": call_id, "output": output})
        step = next(one for one in reversed(run.steps.values()) if one["status"] == "in_progress")
        names = {one["id"]: one.get("name") for one in step["step_details"]["tool_calls"]}
        decided: list[Json] = body.get("tool_approvals") or []
        for one in decided:
            said = run.after_approval.get(str(names[one["tool_call_id"]])) if one["approve"] else "The call was denied."
            outputs[one["tool_call_id"]] = said
        answer = self._answer(thread, run)
        script = RunScript(run.shown, self._mint, now(), answer.delivery.chunk_characters)
        script.answers(step, outputs)
        for call_id, output in outputs.items():
            if names[call_id]:  # of a server: listed steps have what came after the step's end
                run.outputs[call_id] = output
        return self._deliver((thread, run), script, answer, request, call)

    def list_steps(self, request: Request, call: Exchange) -> ASGIApp:
        """List the steps of a run, with what code has put out."""
        _, run = self._run(request)
        known = dict(run.steps)
        for one in run.coming:
            if one["event"].startswith("thread.run.step.") and not one["event"].endswith("delta"):
                known[one["data"]["id"]] = one["data"]
        return call.answer(page(request, [with_outputs(step, run.outputs) for step in known.values()]))

    def read_step(self, request: Request, call: Exchange) -> ASGIApp:
        """Read a step."""
        _, run = self._run(request)
        return call.answer(with_outputs(found(run.steps, request.path_params["step"], "run step"), run.outputs))

    async def upload(self, request: Request) -> ASGIApp:
        """Take a file."""
        async with request.form() as form:
            sent: Any = form["file"]
            data, purpose = await sent.read(), str(form.get("purpose"))
            return JsonAnswer(self._store.keep(self._store.new_id("assistant"), sent.filename, data, purpose))

    def read_file(self, request: Request, call: Exchange) -> ASGIApp:
        """Read what is known of a file."""
        return call.answer(found(self._store.files, request.path_params["file"], "file")[0])

    def read_content(self, request: Request, call: Exchange) -> ASGIApp:
        """Download a file."""
        data = found(self._store.files, request.path_params["file"], "file")[1]
        call.ended("complete", 0, ())
        return Response(data, media_type="application/octet-stream")

    async def expire(self, _request: Request) -> ASGIApp:
        """Let the runs expire that wait, as after ten minutes."""
        waiting = [
            run
            for thread in self._store.threads.values()
            for run in thread.runs.values()
            if run.shown["status"] == "requires_action"
        ]
        for run in waiting:
            run.shown = {**run.shown, "status": "expired", "required_action": None}
        return JsonAnswer({"expired": len(waiting)})


def _encode(one: Json) -> bytes:
    return b"event: " + str(one["event"]).encode() + b"\ndata: " + encode_json(one["data"]) + b"\n\n"


def agents_routes(shared: Shared) -> list[Route]:
    """List the routes of a new service."""
    return AgentsService(shared).routes()
