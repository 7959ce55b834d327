"""Clients of OpenAI's Responses API, unmodified: they run tools, reply to calls, come back, fork, cancel."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import agents
import openai
import openresponses_types.types as open_responses
import pytest
import requests
from agent_framework import FunctionTool
from aiohttp import ClientConnectionError
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from durable_agent_host.http.request_handling import handle_errors
from durable_agent_host.http.response_views import terminal_event
from durable_agent_host.model.turn import Turn
from durable_agent_host.protocols.openai.events import ResponseEvents
from durable_agent_host.protocols.openai.ids import ItemName, encode_id
from durable_agent_host.protocols.openai.routes import show_problem
from tests.durable_agent_host.hostile_model import HostileModel, hostile_model
from tests.durable_agent_host.played_recordings import REQUEST, play, read_events, recorded_files, to_wire
from tests.kit import RECORDINGS, AgentHost, Lives, PracticeModel, running_host
from tests.kit_services import SERVICES

APP = Path(__file__).parent / "apps" / "responses"
LOCATE: Any = {
    "type": "function",
    "name": "locate",
    "description": "Where the user is.",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}
WEATHER = {"calls": [{"name": "weather", "arguments": {"city": "Bonn"}}]}
PAY = {"calls": [{"name": "pay", "arguments": {"amount": 3}}]}
MESSAGE_EVENTS = [
    *("output_item.added", "content_part.added", "output_text.delta"),
    *("output_text.done", "content_part.done", "output_item.done"),
]


@pytest.fixture(scope="module")
def _site(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    folder = tmp_path_factory.mktemp("responses")
    with running_host(folder / "data", practice_model, app=APP, DURABLE_AGENT_HOST_WAIT_SECONDS="20") as host:
        yield host


@pytest.fixture
def site(_site: AgentHost, model: PracticeModel) -> AgentHost:
    """A host of agents for the clients."""
    return _site


def connect(host: AgentHost, **options: Any) -> openai.OpenAI:
    """Make a client that repeats nothing."""
    return openai.OpenAI(base_url=f"{host.url}/api/openai/v1", api_key="none", **{"max_retries": 0, **options})


@pytest.fixture
def client(site: AgentHost) -> openai.OpenAI:
    """A client that repeats nothing."""
    return connect(site)


def names(events: Sequence[Any]) -> list[str]:
    """Give the types of events, adjacent fragments once."""
    return [name.removeprefix("response.") for name in types_of([{"type": event.type} for event in events])]


def dumps(events: Sequence[Any]) -> list[dict[str, Any]]:
    """Give events as they came, without what a client adds."""
    return [event.to_dict() for event in events]


def raw_events(host: AgentHost, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Post a streamed request without a client."""
    lines = [*raw_lines(host, body)]
    assert not [line for line in lines if line.startswith("id:")]
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


def raw_lines(host: AgentHost, body: dict[str, Any]) -> Iterator[str]:
    """Post a streamed request, and read its lines."""
    with requests.post(f"{host.url}/api/openai/v1/responses", json={"stream": True, **body}, stream=True) as answer:
        assert answer.ok, answer.text
        yield from answer.iter_lines(decode_unicode=True)


def check_open_responses(events: Sequence[dict[str, Any]]) -> None:
    """Hold events and the final response against the schema of OpenResponses."""
    models = [model for name, model in vars(open_responses).items() if name.endswith("StreamingEvent")]
    by_type = {next(iter(model.model_fields["type"].annotation)).value: model for model in models}
    for event in events:
        by_type[event["type"]].model_validate(event)
    open_responses.ResponseResource.model_validate(events[-1]["response"])


def test_a_response_is_created_streamed_and_read_again(client: openai.OpenAI, site: AgentHost, model: PracticeModel):
    """Its events have the official order; both schemas accept them; each can be read again from any of them on."""
    model.plan({"items": [{"reasoning": "Let me think."}, {"text": "Hello there."}]}, times=3)
    response = client.responses.create(model="Talker", input="hi")
    assert (response.status, response.output_text, response.model) == ("completed", "Hello there.", "Talker")
    assert response.usage is not None
    assert response.usage.output_tokens > 0
    with client.responses.stream(model="Talker", input="hi") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == "Hello there."
    reasoning = ("reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.done")
    assert names(events) == [
        *("created", "in_progress", "output_item.added", *reasoning, "reasoning_summary_part.done", "output_item.done"),
        *MESSAGE_EVENTS,
        "completed",
    ]
    parts: list[dict[str, Any]] = [
        {"type": "input_text", "text": "hi"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
        {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGk="},
    ]
    posted = raw_events(site, {"model": "Talker", "input": [{"role": "user", "content": parts}]})
    check_open_responses(posted)
    for event in posted:
        TypeAdapter[Any](ResponseStreamEvent).validate_python(event, strict=False)
    assert [event["sequence_number"] for event in posted] == list(range(len(posted)))
    response_id = posted[-1]["response"]["id"]
    for number in range(len(posted)):
        later = client.responses.retrieve(response_id, stream=True, starting_after=number)
        assert dumps([*later]) == posted[number + 1 :]
    assert client.responses.retrieve(response_id).to_dict() == posted[-1]["response"]
    (message,) = client.responses.input_items.list(response_id)
    text, image, file = message.content
    assert (text.text, image.image_url, file.filename) == ("hi", parts[1]["image_url"], "a.txt")
    assert file.file_url == parts[2]["file_data"]
    assert [found.id for found in client.models.list()] == [
        *("Talker", "Helper", "Open", "Discreet", "Booking"),
    ]


def test_the_agents_tools_are_mcp_calls(client: openai.OpenAI, site: AgentHost, model: PracticeModel):
    """Their calls come with arguments and output, which no client takes for its own."""
    model.plan(WEATHER, {"text": "Sunny."})
    events = [*client.responses.create(model="Helper", input="weather?", stream=True)]
    assert names(events) == [
        *("created", "in_progress", "output_item.added", "mcp_call.in_progress", "mcp_call_arguments.delta"),
        *("mcp_call_arguments.done", "mcp_call.completed", "output_item.done", *MESSAGE_EVENTS, "completed"),
    ]
    call = events[-1].response.output[0]
    assert (call.type, call.server_label, call.name, call.status) == ("mcp_call", "Helper", "weather", "completed")
    assert (call.output, json.loads(call.arguments)) == ("sunny in Bonn", {"city": "Bonn"})


@pytest.mark.parametrize("way", ["previous_response_id", "conversation", "replay", "background"])
def test_the_clients_tool_ends_a_response_and_its_output_begins_the_next(
    client: openai.OpenAI, site: AgentHost, model: PracticeModel, way: str
):
    """The output comes by the response's id, in its conversation, or after the replayed history; twice is once."""
    model.plan(
        {"items": [{"text": "Let me see."}, {"calls": [{"name": "locate", "arguments": {}}]}]}, {"text": "Bonn."}
    )
    created = raw_events(site, {"model": "Talker", "input": "where am I?", "tools": [LOCATE]})
    check_open_responses(created)
    response = Response.model_validate(created[-1]["response"])
    message, call = response.output
    assert (response.status, message.type, call.type, call.name) == ("completed", "message", "function_call", "locate")
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Bonn"}
    body: dict[str, Any] = {"model": "Talker", "tools": [LOCATE], "input": [output]}
    if way == "replay":
        body["input"] = [{"role": "user", "content": "where am I?"}, *map(to_input, response.output), output]
    elif way == "conversation":
        body["conversation"] = response.conversation.id
    else:
        body["previous_response_id"] = response.id
    refused: list[Any] = [("no output of 'locate'", "well?"), ("once for each", [output, output | {"output": "Ulm"}])]
    for text, items in refused:
        with pytest.raises(openai.BadRequestError, match=text):
            client.responses.create(model="Talker", previous_response_id=response.id, input=items)
    first = client.responses.create(**body, background=way == "background")
    second = client.responses.create(**body)
    assert second.output_text == "Bonn."
    assert (first.id, second.previous_response_id) == (second.id, response.id)
    (item,) = client.responses.input_items.list(second.id)
    assert (item.type, item.call_id, item.output) == ("function_call_output", call.call_id, "Bonn")
    assert len(model.requests()) == 2


def to_input(item: Any) -> dict[str, Any]:
    """Write an item of an output as input, as clients do."""
    return item.to_dict(exclude_none=True)


def test_an_approval_is_requested_and_the_call_runs_in_the_next_response(client: openai.OpenAI, model: PracticeModel):
    """The call is that of the request; the whole conversation can be listed and deleted."""
    model.plan(PAY, {"text": "Paid."})
    response = client.responses.create(model="Helper", input="pay")
    (request,) = response.output
    assert (request.type, request.name, request.server_label) == ("mcp_approval_request", "pay", "Helper")
    assert client.responses.cancel(response.id).status == "completed"
    reply = approval_of(response)
    refused = {
        "input[0].approve": [reply | {"approve": "yes"}],
        "input[0].approval_request_id": [reply | {"approval_request_id": "mcpr_1"}],
        "input[1].approval_request_id": [reply, reply | {"approve": False}],
    }
    for field, items in refused.items():
        with pytest.raises(openai.BadRequestError) as error:
            client.responses.create(model="Helper", previous_response_id=response.id, input=items)
        assert error.value.param == field
    final = client.responses.create(model="Helper", previous_response_id=response.id, input=[reply])
    call, message = final.output
    assert (call.type, call.output, call.approval_request_id) == ("mcp_call", "paid 3", request.id)
    assert (message.type, final.output_text) == ("message", "Paid.")
    assert response.conversation is not None
    items = client.conversations.items.list(response.conversation.id, order="asc").data
    types = ["message", "mcp_approval_request", "mcp_approval_response", "mcp_call", "message"]
    assert [item.type for item in items] == types
    assert client.conversations.retrieve(response.conversation.id).id == response.conversation.id
    assert client.conversations.delete(response.conversation.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(final.id)


def approval_of(response: Any) -> Any:
    """Approve the last call of a response."""
    return {"type": "mcp_approval_response", "approval_request_id": response.output[-1].id, "approve": True}


def test_a_response_whose_log_is_deleted_has_its_answer(client: openai.OpenAI, model: PracticeModel):
    """Of an agent with redaction, the last response has what is left of the turn; the same request is the same."""
    model.plan(PAY, {"text": "Paid."})
    asked = client.responses.create(model="Discreet", input="pay")
    body: dict[str, Any] = {
        "model": "Discreet",
        "previous_response_id": asked.id,
        "input": [approval_of(asked)],
        "extra_headers": {"Idempotency-Key": "discreet"},
    }
    final, repeated = (client.responses.create(**body) for _ in range(2))
    read = client.responses.retrieve(final.id)
    assert [found.id for found in (repeated, read)] == [final.id] * 2
    assert [found.output_text for found in (final, repeated, read)] == ["Paid."] * 3
    assert [*client.responses.retrieve(final.id, stream=True)][-1].response.output_text == "Paid."
    first = client.responses.retrieve(asked.id)
    assert (first.status, first.output) == ("completed", [])
    items = client.conversations.items.list(final.conversation.id, order="asc").data
    assert [item.role for item in items] == ["user", "assistant"]


def test_a_question_of_a_workflow_gets_the_type_for_which_it_asks(client: openai.OpenAI):
    """The output of its call is JSON of that type."""
    asked = client.responses.create(model="Booking", input="book")
    output: Any = {"type": "function_call_output", "call_id": asked.output[0].call_id, "output": "many"}
    body: dict[str, Any] = {"model": "Booking", "previous_response_id": asked.id}
    with pytest.raises(openai.BadRequestError, match="not of type 'integer'"):
        client.responses.create(**body, input=[output])
    assert client.responses.create(**body, input=[output | {"output": "4"}]).output_text == "4 seats are booked."


def test_after_a_failed_turn_the_conversation_goes_on(client: openai.OpenAI, model: PracticeModel):
    """The retry follows the last response of which the client knows, and the model knows what was done."""
    model.plan({"text": "Hello."}, WEATHER, {"error": {"status": 400, "code": "bad", "message": "no such thing"}})
    first = client.responses.create(model="Helper", input="hi")
    with pytest.raises(openai.InternalServerError, match="no such thing"):
        client.responses.create(model="Helper", input="weather?", previous_response_id=first.id)
    model.plan({"text": "Sunny."})
    retried = client.responses.create(model="Helper", input="weather?", previous_response_id=first.id)
    assert retried.conversation == first.conversation
    assert "sunny in Bonn" in json.dumps(model.requests()[-1]["body"]["input"])


def test_an_earlier_response_forks_and_the_last_one_continues(client: openai.OpenAI, model: PracticeModel):
    """A conversation goes on by either id; a key makes a repeated fork the same, and a repeated request one turn."""
    model.plan(*({"text": f"Answer {number}."} for number in range(6)))
    conversation = client.conversations.create()
    with pytest.raises(openai.NotFoundError, match="no response yet"):
        client.conversations.retrieve(conversation.id)
    first = client.responses.create(
        model="Talker", input="one", conversation=conversation.id, stream_options={"include_obfuscation": False}
    )
    with pytest.raises(openai.BadRequestError, match="send 'Talker'"):
        client.responses.create(model="Helper", input="one", conversation=conversation.id)
    assert [item.type for item in client.conversations.items.list(conversation.id)] == ["message", "message"]
    key = {"Idempotency-Key": "b"}
    second, repeated = (
        client.responses.create(model="Talker", input="two", previous_response_id=first.id, extra_headers=key)
        for _ in range(2)
    )
    assert repeated.id == second.id
    assert first.conversation is not None
    assert second.conversation == first.conversation
    third, repeated = (
        client.responses.create(
            model="Talker",
            input="three",
            previous_response_id=second.id,
            extra_headers={"x-stainless-retry-count": number},
        )
        for number in ("0", "1")
    )
    assert repeated.id == third.id
    key = {"Idempotency-Key": "a"}
    forks = [
        client.responses.create(model="Talker", input="2", previous_response_id=first.id, extra_headers=key)
        for _ in range(2)
    ]
    assert forks[0].id == forks[1].id
    assert forks[0].conversation != first.conversation
    texts = json.dumps(model.requests()[-1]["body"]["input"]).split('"')
    assert [text for text in texts if text in {"one", "two", "2"}] == ["one", "2"]
    with pytest.raises(openai.BadRequestError, match="send 'Talker'") as error:
        client.responses.create(model="Open", input="two", previous_response_id=first.id)
    assert error.value.param == "model"
    with pytest.raises(openai.ConflictError, match="has others"):
        client.responses.delete(second.id)


def test_what_a_client_sends_is_honoured_or_refused(client: openai.OpenAI, site: AgentHost, model: PracticeModel):
    """An app allows options by name; everything else is a 400 that names it, and that no client repeats."""
    model.plan({"text": '{"town": "Ghent"}'})
    schema = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}
    response = client.responses.create(
        model="Open",
        input=[{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "where?"}],
        instructions="Be kind.",
        temperature=0.25,
        metadata={"a": "b"},
        text={"format": {"type": "json_schema", "name": "town", "schema": schema, "strict": False}},
    )
    body = model.requests()[-1]["body"]
    assert "Be brief.\n\nBe kind." in json.dumps(body, ensure_ascii=False).replace("\\n", "\n")
    assert (body["temperature"], body["text"]["format"]["type"]) == (0.25, "json_schema")
    assert (response.temperature, response.metadata, response.text.format.type) == (0.25, {"a": "b"}, "json_schema")
    user = {"role": "user", "content": [{"type": "input_text"}]}
    refused: list[tuple[str, str, Any]] = [
        ("temperature", "allowed_options", {"temperature": 0.5}),
        ("instructions", "allowed_options", {"instructions": "Be brief."}),
        ("store", "allowed_options", {"store": False}),
        ("response_format", "'response_format' cannot be set", {"response_format": {"type": "text"}}),
        ("verbosity", "allowed_options", {"text": {"verbosity": "low"}}),
        ("tool_choice", "'auto' or 'none'", {"tool_choice": "required"}),
        ("tools[0].type", "web_search", {"tools": [{"type": "web_search"}]}),
        ("tools", "'tools' has 'locate' twice", {"tools": [LOCATE, LOCATE]}),
        ("text.format", "not a usable", {"text": {"format": {"type": "xml"}}}),
        ("input", "a new message", {"input": []}),
        ("input", "a text or a list", {"input": 3}),
        ("input", "input is blank", {"input": " "}),
        ("input", "of part 1 of input is null", {"input": [user]}),
        ("input[0]", "an object", {"input": [3]}),
        ("input[0]", "not of this host", {"input": [{"role": "assistant", "content": "hi"}]}),
        ("input[0]", "not of this host", {"input": [{"role": [], "content": "hi"}]}),
        ("input[0].content", "a text or a list", {"input": [{"role": "user", "content": 3}]}),
        ("input[0].call_id", "the id of a call", {"input": [{"type": "function_call_output", "call_id": "c"}]}),
        ("stream", "true or false", {"stream": "yes"}),
        ("conversation", "needs an id", {"conversation": {}}),
        ("conversation", "conv_1", {"conversation": "conv_1"}),
        ("previous_response_id", "resp_1", {"previous_response_id": "resp_1"}),
        (None, "Nobody", {"model": "Nobody"}),
        (None, "an object with the request's fields", None),
    ]
    for param, text, fields in refused:
        body: Any = fields and {"model": "Talker", "input": "hi", **fields}
        with pytest.raises(openai.APIStatusError, match=text) as error:
            client.post("/responses", cast_to=Response, options={"max_retries": 2}, content=json.dumps(body).encode())
        assert error.value.param == param
        assert error.value.status_code == (404 if text in {"conv_1", "resp_1", "Nobody"} else 400)
        assert error.value.response.headers["x-should-retry"] == "false"
    assert len(model.requests()) == 1
    nothing = encode_id("conv", "Talker", "")
    something = encode_id("conv", "Talker", "session")
    for method, path in (
        *(("GET", f"/conversations/{nothing}"), ("DELETE", f"/conversations/{nothing}")),
        *(("GET", f"/conversations/{nothing}/items"), ("GET", f"/files/{something}/content")),
        *(("GET", f"/responses/{something}"), ("DELETE", f"/responses/{something}")),
    ):
        answer = requests.request(method, f"{site.url}/api/openai/v1{path}")
        assert (path, answer.status_code) == (path, 404)
    with pytest.raises(openai.NotFoundError, match="there is no agent 'Hidden'"):
        client.responses.retrieve(encode_id("resp", "Hidden", "session", "turn", 0))


def test_ends_of_a_turn_are_ends_of_a_response(client: openai.OpenAI, site: AgentHost, model: PracticeModel):
    """Cut off, refused, failed, cancelled: each has its status; a failed one is an error that is not repeated."""
    model.plan({"text": "Half a", "incomplete": "max_output_tokens"})
    cut = client.responses.create(model="Talker", input="hi")
    assert (cut.status, cut.incomplete_details.reason, cut.output_text) == ("incomplete", "max_output_tokens", "Half a")
    content = [{"type": "refusal", "refusal": "I will not."}]
    model.plan({"item": {"type": "message", "role": "assistant", "status": "completed", "content": content}})
    refusing = raw_events(site, {"model": "Talker", "input": "hi"})
    check_open_responses(refusing)
    assert refusing[-1]["response"]["output"][-1]["content"] == content
    model.plan({"error": {"status": 400, "code": "bad", "message": "no such thing"}})
    with pytest.raises(openai.InternalServerError, match="no such thing") as error:
        connect(site, max_retries=2).responses.create(model="Talker", input="hi")
    assert error.value.response.headers["x-should-retry"] == "false"
    model.plan({"error": {"status": 400, "code": "bad", "message": "no such thing"}})
    *_, last = client.responses.create(model="Talker", input="hi", stream=True)
    assert (last.type, last.response.error.code) == ("response.failed", "server_error")
    assert client.responses.retrieve(last.response.id).status == "failed"
    model.plan({"text": "word " * 100, "delay_milliseconds": 100})
    running = client.responses.create(model="Talker", input="hi", background=True)
    assert running.status in {"queued", "in_progress"}
    assert client.responses.cancel(running.id).status == "cancelled"
    assert client.responses.cancel(running.id).status == "cancelled"
    *_, last = client.responses.retrieve(running.id, stream=True)
    assert (last.type, last.response.status) == ("response.incomplete", "cancelled")
    client.responses.delete(running.id)


async def test_what_may_have_begun_is_repeated_by_no_client():
    """The durable store can fail behind the admission of a turn: the host's own clients then use their key."""

    async def fail() -> Any:
        raise ClientConnectionError

    answer = await handle_errors("POST /api/openai/v1/responses", fail)
    assert answer.headers["retry-after"]
    assert show_problem(json.loads(bytes(answer.body)), answer).headers["x-should-retry"] == "false"


@pytest.mark.parametrize("options", [{}, {"auto_previous_response_id": True}], ids=["replay", "previous"])
async def test_openai_agents_run_their_tools_and_know_ours(site: AgentHost, model: PracticeModel, options: Any):
    """Its own tools run there, the agent's tools here; a second run continues the session, by either way."""
    agents.set_tracing_disabled(True)
    sums: list[int] = []

    @agents.function_tool
    def add(a: int, b: int) -> int:
        """Add."""
        sums.append(a + b)
        return a + b

    async with openai.AsyncOpenAI(base_url=f"{site.url}/api/openai/v1", api_key="none", max_retries=0) as remote:
        settings = {"name": "A", "instructions": "Be brief.", "tools": [add]}
        agent = agents.Agent(**settings, model=agents.OpenAIResponsesModel("Open", remote))
        model.plan({"calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]}, {"text": "3"}, {"text": "Bye."})
        first = await agents.Runner.run(agent, "add", **options)
        assert (sums, first.final_output) == ([3], "3")
        second = agents.Runner.run_streamed(agent, [*first.to_input_list(), {"role": "user", "content": "bye"}])
        assert [event async for event in second.stream_events()]
        assert second.final_output == "Bye."
        turns = model.requests()[-1]["body"]["input"]
        assert [item.get("type", item.get("role")) for item in turns].count("function_call") == 1
        helper = agents.Agent(name="B", model=agents.OpenAIResponsesModel("Helper", remote))
        model.plan(WEATHER, {"text": "Sunny."})
        assert (await agents.Runner.run(helper, "weather?", **options)).final_output == "Sunny."


@pytest.mark.skipif(not shutil.which("node") or not (SERVICES / "node_modules" / "openai").exists(), reason="no client")
def test_the_javascript_client_does_the_same(site: AgentHost, model: PracticeModel):
    """It throws on events that it does not know; it runs tools, denies, cancels, and comes back."""
    model.plan(WEATHER, {"text": "Sunny."})
    model.plan({"calls": [{"name": "locate", "arguments": {}}]}, {"text": "Bonn."}, user_text="where?")
    model.plan(PAY, {"text": "Not paid."}, user_text="pay")
    model.plan({"text": "word " * 100, "delay_milliseconds": 100}, user_text="long")
    command = ["node", str(SERVICES / "openai_client.mjs"), f"{site.url}/api/openai/v1"]
    cases = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert cases["tool"]["types"][-1] == "response.completed"
    assert (cases["tool"]["items"], cases["tool"]["text"]) == (["mcp_call", "message"], "Sunny.")
    assert cases["tool"]["later"][0] == 4
    assert cases["locate"] == {"name": "locate", "text": "Bonn."}
    assert cases["denied"] == {"asked": "mcp_approval_request", "text": "Not paid."}
    assert cases["cancelled"] == "cancelled"
    assert (cases["refused"]["status"], "temperature" in cases["refused"]["message"]) == (400, True)


def test_a_killed_host_continues_the_stream_with_the_same_numbers(lives: Callable[..., Lives], model: PracticeModel):
    """What was sent stays sent; text that is taken back is in an item that ends incomplete, and empty in the end.

    A stream of the next turn begins with comments, and not when the turn begins.
    """
    modules = ("durable_agent_host.http.event_stream", "durable_agent_host.protocols.dialect")
    constants = dict.fromkeys((f"{module}:HEARTBEAT_SECONDS" for module in modules), 0.05)
    life = lives(app=APP, TEST_CONSTANTS=json.dumps(constants))
    answer = {"text": "An answer of some length. " * 20, "chunk_characters": 20}
    model.plan(answer | {"delay_milliseconds": 200}, answer, {"text": "Next."})
    received: list[Any] = []
    first_lines: list[str] = []

    def read_until_killed() -> None:
        for event in connect(life.host).responses.create(model="Talker", input="go", stream=True):
            received.append(event)
            if len(received) == 3:
                body = {"model": "Talker", "input": "next", "previous_response_id": received[0].response.id}
                first_lines.append(next(raw_lines(life.host, body)))
            if len(received) == 8:
                life.host.kill()

    with pytest.raises(openai.APIError):
        read_until_killed()
    assert first_lines[0].startswith(":")
    client = connect(life.crash())
    response_id = received[0].response.id
    later = [*client.responses.retrieve(response_id, stream=True, starting_after=received[-1].sequence_number)]
    assert [event.sequence_number for event in (*received, *later)] == list(range(len(received) + len(later)))
    assert dumps([*received, *later]) == dumps([*client.responses.retrieve(response_id, stream=True)])
    final = later[-1].response
    assert final.output_text == "An answer of some length. " * 20
    assert [item.status for item in final.output] == ["incomplete", "completed"]


OTHER_ITEMS = (
    *("HANDMADE-custom-tool", "apply-patch", "custom-tool-grammar", "local-shell", "shell-hosted", "tool-search"),
    *("programmatic-tool-calls", "image-generation-partial", "incomplete-in-function-call", "xai-web-search"),
    *("ci-image-output", "mcp-failed-then-ok"),
)
"""Recorded streams with items that clients get in another form, or without what they have."""
SECOND_HALF = "background-resume-starting-after/02.events.jsonl"
"""A stream that was resumed."""
RECORDED = [
    name
    for name in (recorded_files() if RECORDINGS.is_dir() else ())
    if name.startswith("openai-responses/") and name.endswith(".jsonl") and not name.endswith(SECOND_HALF)
    if not any(other in name for other in OTHER_ITEMS)
]
HIDDEN_TYPES = ("response.queued", "error")
HIDDEN_FIELDS = (
    *("id", "call_id", "container_id", "file_id", "server_label", "results", "sources", "phase"),
    *("encrypted_content", "logprobs"),
)
"""Fields whose values are those of this host, or that clients do not get; see "What differs" in the guide."""


@pytest.fixture(scope="module")
def recorded_model() -> Iterator[HostileModel]:
    """An endpoint that plays recordings."""
    with hostile_model() as running:
        yield running


@pytest.mark.recordings
@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="no recordings: set RECORDINGS_DIR")
@pytest.mark.parametrize("name", RECORDED)
def test_a_stream_is_the_one_that_the_service_has_sent(recorded_model: HostileModel, name: str):
    """Played as the model, a recorded stream leads to the same types of events, and the same items."""
    recorded = read_events(name)
    final = recorded[-1]["response"]
    hidden_ids = {event["item"]["id"] for event in recorded if "item" in event and is_hidden(event)}
    items = [event["item"] for event in recorded if event["type"] == "response.output_item.done"]
    output = [item for item in final.get("output") or items if item["id"] not in hidden_ids]
    tools = [
        FunctionTool(name=tool, func=None, input_model={"type": "object", "properties": {}})
        for tool in {item["name"] for item in output if item["type"] == "function_call"}
    ]
    played = play(recorded_model, "openai-responses", to_wire("openai-responses", recorded), tools=tools)
    turn_events = list(played.events)
    if played.outcome.has_ended:
        turn_events.append(terminal_event(REQUEST, played.outcome, ""))
    response_name = ItemName(REQUEST.agent, REQUEST.session_id, REQUEST.turn_id)
    response_events = ResponseEvents(Turn(REQUEST, None), response_name, set().__contains__, "")
    events = [
        event for number, (kind, data) in enumerate(turn_events) for event in response_events.feed(number, kind, data)
    ]
    assert types_of(events) == types_of([event for event in recorded if event_item_id(event) not in hidden_ids])
    assert comparable(response_events.body["output"]) == comparable(output)
    body = response_events.body
    assert body["status"] == final.get("status", "completed")
    assert body["incomplete_details"] == final.get("incomplete_details")
    for field, count in (final.get("usage") or {}).items():
        if played.outcome.has_ended and field in {"input_tokens", "output_tokens", "total_tokens"}:
            assert body["usage"][field] == count


def is_hidden(event: dict[str, Any]) -> bool:
    """Whether clients do not get the item of an event."""
    item = event["item"]
    is_done = event["type"] == "response.output_item.done"
    return item["type"] == "mcp_list_tools" or (item["type"] == "reasoning" and is_done and not item.get("summary"))


def event_item_id(event: dict[str, Any]) -> str | None:
    """Give the id of the item that an event is of."""
    return event.get("item_id", event.get("item", {}).get("id"))


def types_of(events: Sequence[dict[str, Any]]) -> list[str]:
    """Give the types of events without annotations, adjacent fragments and parts of a summary once."""
    types = [
        event["type"]
        for event in events
        if "annotation" not in event["type"] and event["type"] not in HIDDEN_TYPES and not event.get("summary_index")
    ]
    return [
        name
        for name, previous in zip(types, [None, *types], strict=False)
        if name != previous or not name.endswith("delta")
    ]


def comparable(value: Any) -> Any:
    """Leave out of items what is not the same, and what is empty; a summary is one text."""
    if isinstance(value, list):
        return [comparable(part) for part in value]
    if isinstance(value, dict):
        if value.get("type") == "reasoning":
            return "\n\n".join(part["text"] for part in value["summary"])
        if value.get("type") == "mcp_call":
            value = value | {"output": value["output"][:400]}
        return {name: comparable(part) for name, part in value.items() if name not in HIDDEN_FIELDS and part != []}
    return value
