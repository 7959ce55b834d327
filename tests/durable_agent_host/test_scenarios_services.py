"""Services that refuse what OpenAI takes: each gets requests in its form, and what is stored stays as it was."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from agent_framework import Agent
from agent_framework_openai import OpenAIChatCompletionClient

from durable_agent_host import DurableAgentApp
from durable_agent_host.errors import RegistrationError
from tests.durable_agent_host.hostile_model import response_events
from tests.durable_agent_host.openai_outputs import (
    TOOL_SEARCH_CALL,
)
from tests.durable_agent_host.scripted_service import (
    ScriptedService,
    anthropic_call,
    anthropic_response,
    anthropic_text,
    chat_response,
    gemini_response,
    scripted_service,
)
from tests.durable_agent_host.service_rules import STAND_INS, find_violation
from tests.durable_agent_host.sse_client import read_events as read_stream
from tests.durable_agent_host.test_scenarios_approvals import approve, read_ended_turn
from tests.kit import AgentHost, running_host
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "services"


@pytest.fixture(scope="module")
def _service() -> Iterator[ScriptedService]:
    with scripted_service() as service:
        yield service


@pytest.fixture(scope="module")
def host(_service: ScriptedService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host with an agent for each service."""
    folder = tmp_path_factory.mktemp("services") / "data"
    with running_host(folder, None, app=APP, SERVICE_URL=_service.url) as running:
        yield running


@pytest.fixture
def service(_service: ScriptedService) -> ScriptedService:
    """The service, with nothing scripted and nothing asked."""
    _service.reset()
    return _service


def call_chunks(call_id: str, arguments: str, *, name: str = "look", **fields: Any) -> list[Any]:
    """A response of Chat Completions that calls a tool."""
    call = {"index": 0, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return chat_response({**fields, "tool_calls": [call]}, finish="tool_calls")


def run(host: AgentHost, agent: str, session: str, text: str = "Look") -> str:
    """Run a turn that succeeds; gives the answer."""
    reply = host.run(agent, {"message": text, "session_id": session})
    assert reply.status_code == 200, reply.text
    return reply.json()["response"]


def hold_conversation(host: AgentHost, service: ScriptedService, agent: str, session: str) -> list[int]:
    """Hold a conversation that strict services refuse as it is; gives the number of refusals after each turn."""
    refusal_counts: list[int] = []
    for responses in (
        [
            call_chunks("functions.look:0", "", reasoning_content="Hm."),
            call_chunks("functions.look:0", '{"what": "nothing"}', reasoning_content="Hm."),
            call_chunks("functions.look:0", '{"what": "a', reasoning_content="Hm."),
            chat_response({"content": "Seen.", "reasoning_content": "Hm."}),
        ],
        [chat_response({"content": ""})],
        [chat_response({"content": "Still here."})],
        [chat_response({"content": "Bye."})],
    ):
        service.play(*responses)
        run(host, agent, session)
        refusal_counts.append(len(service.refusals))
    return refusal_counts


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", STAND_INS)
def test_a_named_service_refuses_nothing(host: AgentHost, service: ScriptedService, name: str):
    """Ids, arguments, roles, contents and fields are such as the service takes, on every request."""
    service.find_violation = lambda body: next(STAND_INS[name](body), None)
    assert hold_conversation(host, service, f"Chat{name.replace('.', '')}", f"named-{name}") == [0, 0, 0, 0]


def test_a_service_without_a_row_is_an_error_at_start():
    """The message lists the rows."""
    client = OpenAIChatCompletionClient(model="m", api_key="k")
    client.additional_properties["service"] = "Mistal"
    with pytest.raises(RegistrationError, match=r"'Mistal'.*Mistral"):
        DurableAgentApp(agents=[Agent(client, "Help.", name="Helper")])


_NO_FIELD = 'Unknown name "parallel_tool_calls": Cannot find field.'


REFUSALS: list[tuple[str, str, Any]] = [
    ("Chatunknown", "parallel_tool_calls", body)
    for body in (
        [{"error": {"code": 400, "message": _NO_FIELD, "status": "INVALID_ARGUMENT"}}],
        {"error": _NO_FIELD},
        {"errors": [{"code": "json_validation_error", "message": _NO_FIELD}], "status_code": 400},
        {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": _NO_FIELD}}},
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "parallel_tool_calls"], "msg": "Extra inputs"}]},
        {"error": {"message": "Extra inputs are not permitted, field: 'parallel_tool_calls', value: False"}},
        {"error": {"message": "x does not support parameters: ['parallel_tool_calls'], for model=m"}},
    )
]
_SENT_FIELDS = (
    *(("Chatunknown", field) for field in ("stream_options", "name")),
    *(("Responsesunknown", field) for field in ("parallel_tool_calls", "store")),
)
REFUSALS += [
    (agent, field, {"error": {"message": f"Unknown parameter: '{field}'.", "param": field}})
    for agent, field in _SENT_FIELDS
]
_NO_CITATIONS = "messages.1.content.0.text.citations: Extra inputs are not permitted"
REFUSALS.append(("Claude", "citations", {"error": {"type": "invalid_request_error", "message": _NO_CITATIONS}}))
"""Agent, a field of a request, a message or its content, and the service's words.

Those of Gemini, xAI, watsonx, OpenRouter, Mistral, Fireworks and LiteLLM come first.
"""


def has_field(body: dict[str, Any], field: str) -> bool:
    """Say whether a request, a message or a part of one has a field."""
    messages = body.get("messages") or ()
    parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    return any(field in value for value in (body, *messages, *parts))


@pytest.mark.drawn(6)
@pytest.mark.parametrize(("agent", "field", "body"), REFUSALS)
def test_a_refused_field_is_left_out(host: AgentHost, service: ScriptedService, agent: str, field: str, body: Any):
    """It is found wherever the service names it: one refusal, the turn goes on, and it is not sent again."""
    service.find_violation = lambda request: (400, body) if has_field(request, field) else None
    citation = {"type": "char_location", "cited_text": "Said", "document_index": 0, "document_title": "A"}
    cites = {"type": "citations_delta", "citation": citation | {"start_char_index": 0, "end_char_index": 4}}
    answers = {
        "Chatunknown": chat_response({"content": "Yes."}),
        "Responsesunknown": response_events("Yes."),
        "Claude": anthropic_response(({"type": "text", "text": ""}, [cites, {"type": "text_delta", "text": "Yes."}])),
    }
    service.play(*[answers[agent]] * 3)
    session = f"refused-{field}-{len(json.dumps(body))}"
    for _ in range(3):
        assert run(host, agent, session) == "Yes."
    assert len(service.refusals) == 1


def test_openai_gets_the_conversation_as_it_was(host: AgentHost, service: ScriptedService):
    """Arguments that no program can read go back to the letter, and only repeated ids are replaced."""
    hold_conversation(host, service, "ChatOpenAI", "openai")
    calls = [call for message in service.bodies[-1]["messages"] for call in message.get("tool_calls") or ()]
    assert [call["function"]["arguments"] for call in calls] == ["", '{"what": "nothing"}', '{"what": "a']
    assert calls[0]["id"] == "functions.look:0"
    results = [message["tool_call_id"] for message in service.bodies[-1]["messages"] if message["role"] == "tool"]
    assert results == [call["id"] for call in calls]
    assert len(set(results)) == 3
    earlier = [call for message in service.bodies[-2]["messages"] for call in message.get("tool_calls") or ()]
    assert earlier == calls


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "message",
    [
        "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
        "Expected one of text, image_url.",
    ],
)
def test_a_refusal_for_another_reason_is_not_repaired(host: AgentHost, service: ScriptedService, message: str):
    """The request is sent once, and the turn fails with the service's reason."""
    service.find_violation = lambda _body: (400, {"error": {"message": message}})
    reply = host.run("Chatunknown", {"message": "Look", "session_id": f"other-{len(message)}"})
    assert reply.status_code >= 400
    assert len(service.refusals) == 1


def items_events(*items: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """The events of a response of the Responses API, whose items come whole."""
    first, *_, last = response_events("")
    return [
        first,
        *(
            {"type": f"response.output_item.{event}", "output_index": index, "item": item}
            for index, item in enumerate(items)
            for event in ("added", "done")
        ),
        {**last, "response": {**last["response"], "output": items, **fields}},
    ]


def responses_call(name: str, arguments: str = "{}", *, number: int = 1, call_id: str = "call_1") -> list[Any]:
    """A response with a call."""
    item = {"type": "function_call", "id": f"fc_{number}", "call_id": call_id, "name": name, "arguments": arguments}
    return items_events(item | {"status": "completed"})


def test_a_strict_service_of_responses_gets_what_it_takes(host: AgentHost, service: ScriptedService):
    """Arguments that are cut, and messages with ids, are sent as a strict reader of items takes them."""
    service.play(responses_call("look", '{"what": "a'), response_events("Done."), response_events("Bye."))

    def find_item(body: dict[str, Any]) -> Any:
        for item in body["input"]:
            if item.get("type") == "function_call" and not isinstance(json.loads(item["arguments"] or "0"), dict):
                return 400, {"error": {"message": "Can only get item pairs from a mapping."}}
            if item.get("role") == "assistant" and not (item.get("id") and item.get("status")):
                return 400, {"error": {"message": "31 validation errors for ValidatorIterator: Field required"}}
        return None

    service.find_violation = find_item
    assert run(host, "ResponsesvLLM", "strict") == "Done."
    assert run(host, "ResponsesvLLM", "strict") == "Bye."
    assert not service.refusals


def test_reasoning_that_is_not_encrypted_goes_back(host: AgentHost, service: ScriptedService):
    """As it came, within the turn and after it."""
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    item |= {"signature": "sig", "format": "anthropic-claude-v1"}  # OpenRouter's
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{}"}
    service.play(items_events(item, call), response_events("Done."), response_events("Bye."))
    assert run(host, "ResponsesvLLM", "thinker") == "Done."
    assert run(host, "ResponsesvLLM", "thinker") == "Bye."
    assert [body["input"].count(item) for body in service.bodies] == [0, 1, 1]


def message_events(index: int, text: str, *between: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a message in the output, with others before the service repeats and ends it."""
    item = {"type": "message", "id": f"msg_{index}", "role": "assistant", "status": "completed"}
    part = {"type": "output_text", "text": text, "annotations": []}
    where = {"output_index": index, "item_id": f"msg_{index}", "content_index": 0}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": item | {"content": []}},
        {"type": "response.content_part.added", **where, "part": part | {"text": ""}},
        {"type": "response.output_text.delta", **where, "delta": text},
        *between,
        {"type": "response.output_text.done", **where, "text": text},
        {"type": "response.output_item.done", "output_index": index, "item": item | {"content": [part]}},
    ]


def response_of(*events: dict[str, Any]) -> list[dict[str, Any]]:
    """A response with these events, which lists at its end the items that are done."""
    first, *_, last = response_events("")
    done = {event["output_index"]: event["item"] for event in events if event["type"].endswith("item.done")}
    return [
        first,
        *events,
        {**last, "response": last["response"] | {"output": [done[index] for index in sorted(done)]}},
    ]


def test_items_that_open_before_another_is_done_are_told_once(host: AgentHost, service: ScriptedService):
    """OpenRouter interleaves them. Reasoning behind the text goes back, until a service says that it takes none."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    thought |= {"encrypted_content": "sealed", "status": "completed"}
    where = {"output_index": 2, "item_id": "rs_1", "summary_index": 0}
    hm = [{"type": "response.reasoning_summary_text.delta", **where, "delta": "Hm."}]
    hm += [{"type": "response.reasoning_summary_text.done", **where, "text": "Hm."}]
    begun, done = (
        {"type": f"response.output_item.{event}", "output_index": 2, "item": thought} for event in ("added", "done")
    )
    events = message_events(0, "One.", begun, *message_events(1, "Two.", hm[0]))
    service.play(response_of(*events, hm[1], done), response_events("Three."), response_events("Four."))
    answer = host.run("Responsesunknown", {"message": "Look", "session_id": "interleaved"}).json()
    assert answer["response"] == "One.\n\nTwo."
    sent_events = [
        (event.name, event.data.get("text")) for event in read_turn(host, "Responsesunknown", "interleaved", answer)
    ]
    assert sent_events[1:-1] == [
        ("message.started", None),
        ("message.delta", "One."),
        ("reasoning.delta", "Hm."),
        ("message.completed", "One."),
        ("message.delta", "\n\n"),
        ("message.started", None),
        ("message.delta", "Two."),
        ("message.completed", "Two."),
    ]
    assert run(host, "Responsesunknown", "interleaved") == "Three."
    assert thought in service.bodies[-1]["input"]
    sentence = "Item 'rs_1' of type 'reasoning' was provided without its required following item."
    service.find_violation = lambda body: (
        (400, {"error": {"message": sentence}}) if "sealed" in json.dumps(body) else None
    )
    assert run(host, "Responsesunknown", "interleaved") == "Four."
    assert len(service.refusals) == 1


def test_a_corrected_text_discards_nothing_before_it(host: AgentHost, service: ScriptedService):
    """A service sends the second item first: clients discard these two, and no tool call or message before them."""
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{}"}
    calling = [
        {"type": f"response.output_item.{event}", "output_index": 1, "item": call} for event in ("added", "done")
    ]
    service.play(
        response_of(*message_events(0, "Wait."), *calling),
        response_of(*message_events(1, "Two."), *message_events(0, "One.")),
    )
    answer = host.run("Responsesunknown", {"message": "Look", "session_id": "swapped"}).json()
    assert answer["response"] == "Wait.\n\nOne.\n\nTwo."
    events = read_turn(host, "Responsesunknown", "swapped", answer)
    (restart,) = (event for event in events if event.name == "turn.restarted")
    discarded = range(restart.data["discard_from"], restart.id)
    assert {event.name.partition(".")[0] for event in events if event.id in discarded} == {"message"}
    deltas = [event.data["text"] for event in events if event.name == "message.delta" and event.id not in discarded]
    assert "".join(deltas) == answer["response"]


PNG, PDF, WAV = "cG5n", "JVBERg==", "c291bmQ="


@pytest.mark.parametrize(("agent", "name"), [("ChatDeepSeek", "DeepSeek"), ("Chatunknown", "DeepSeek")])
def test_a_service_without_pictures_is_told_of_them(host: AgentHost, service: ScriptedService, agent: str, name: str):
    """A text names the files, at once where the service is known, otherwise once it has refused them."""
    service.find_violation = lambda body: next(
        (refusal for refusal in STAND_INS[name](body) if "image_url" in str(refusal)), None
    )
    session = f"no-pictures-{agent}"
    service.play(call_chunks("abcdefghi", "{}", name="fetch"), *[chat_response({"content": "Done."})] * 2)
    assert run(host, agent, session) == run(host, agent, session) == "Done."
    assert len(service.refusals) == (agent == "Chatunknown")
    tool = next(message for message in service.bodies[-1]["messages"] if message["role"] == "tool")
    assert (
        "[file: image/png, plot.png, 3 bytes; not sent: this model's service does not take it here]" in tool["content"]
    )


DONE: dict[str, list[Any]] = {
    "Chatunknown": chat_response({"content": "Done."}),
    "Responsesunknown": response_events("Done."),
    "Claude": anthropic_response(anthropic_text("Done.")),
    "Gemini": gemini_response({"text": "Done."}),
}
THOUGHT: dict[str, Any] = {"type": "thinking", "thinking": "Hm.", "signature": "sealed"}


def fetch_call(agent: str, number: int, **arguments: bool) -> list[Any]:
    """A response that calls a tool, after a thought where the service seals thoughts."""
    text = json.dumps(arguments)
    match agent:
        case "Claude":
            return anthropic_response(THOUGHT, anthropic_call(f"toolu_{number}", "fetch", text), stop="tool_use")
        case "Gemini":
            call = {"id": f"g{number}", "name": "fetch", "args": arguments}
            return gemini_response({"functionCall": call, "thoughtSignature": "c2VhbGVk"})
        case "Responsesunknown" | "ResponsesFoundry":
            return responses_call("fetch", text, number=number, call_id=f"call_{number}")
        case _:
            return call_chunks(f"abcdefgh{number}", text, name="fetch")


FILE_TYPES = {
    "Chatunknown": ("user", ["text", "image_url", "file", "input_audio"]),
    "ChatMistral": ("user", ["text", "image_url", "file", "input_audio"]),
    "Responsesunknown": ("output", ["input_text", "input_image", "input_file", "input_text", "input_file"]),
    "ResponsesFoundry": ("user", ["input_text", "input_image", "input_file", "input_audio"]),
    "Claude": ("user", ["text", "image", "text", "text", "document"]),
    "Gemini": ("user", ["text", "image/png", "application/pdf", "audio/wav"]),
}
"""Agent → the role of what has the files of a tool in the request, and its parts."""


@pytest.mark.drawn(3)
@pytest.mark.parametrize("agent", FILE_TYPES)
def test_files_of_tools_reach_a_service(host: AgentHost, service: ScriptedService, agent: str):
    """In the result or behind it, as the service takes them, live and cold; what cannot be sent is named."""
    if agent == "ChatMistral":
        service.find_violation = lambda body: next(STAND_INS["Mistral"](body), None)
    done = DONE.get(agent) or DONE["Responsesunknown" if agent.startswith("Responses") else "Chatunknown"]
    service.play(fetch_call(agent, 1), done, done)
    assert run(host, agent, f"files-{agent}") == run(host, agent, f"files-{agent}", "And?") == "Done."
    name = next(name for name in ("messages", "input", "contents") if name in service.bodies[1])
    live, cold = (
        [{key: value for key, value in item.items() if key != "name"} for item in body[name]]
        for body in service.bodies[1:3]
    )
    assert cold[: len(live)] == live
    text = json.dumps(live)
    assert PNG in text
    assert PDF in text
    if agent not in {"Responsesunknown", "Claude"}:
        assert all(note in text for note in ("application/zip, 2 bytes; not sent", "plot.png", "report.pdf"))
    assert (WAV in text) is (agent != "Claude")
    assert not service.refusals
    kind, types = FILE_TYPES[agent]
    if kind == "output":
        parts = next(item["output"] for item in live if item.get("type") == "function_call_output")
    elif agent == "Claude":
        parts = live[-1]["content"][0]["content"]
    else:
        assert live[-1]["role"] == kind
        parts = live[-1].get("content") or live[-1]["parts"][1:]
    assert [part.get("type") or part.get("inlineData", {}).get("mimeType", "text") for part in parts] == types


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("Chatunknown", "The image data you provided is not valid."),
        ("Responsesunknown", "The image data you provided is not valid."),
        ("Claude", "Could not process image"),
        ("Gemini", "Unable to process input image. Please retry or report in https://developers.google.com"),
        ("Gemini", "Request contains an invalid argument."),
    ],
)
def test_a_picture_that_a_service_refuses_does_not_hide_the_next(
    host: AgentHost, service: ScriptedService, agent: str, message: str
):
    """Only what the refused request had in addition is left out; earlier and later files of tools are sent."""
    broken = b64encode(b"broken").decode()
    error = {"message": message, "type": "invalid_request_error", "code": 400, "status": "INVALID_ARGUMENT"}
    service.find_violation = lambda body: (
        (400, {"type": "error", "error": error}) if broken in json.dumps(body) else None
    )
    done = DONE[agent]
    calls = (fetch_call(agent, 1), fetch_call(agent, 2, broken=True), fetch_call(agent, 3))
    service.play(*calls, done, done)
    session = f"broken-{agent}-{message.partition(' ')[0]}"
    assert run(host, agent, session) == run(host, agent, session) == "Done."
    assert len(service.refusals) == 1
    assert [json.dumps(body).count(PNG) for body in service.bodies] == [0, 1, 1, 2, 2]
    last_text = json.dumps(service.bodies[-1])
    assert "[file: image/png, 6 bytes; not sent" in last_text
    if agent in {"Claude", "Gemini"}:
        assert len(re.findall('"sealed"|"c2VhbGVk"', last_text)) == 3


def test_a_link_that_has_expired_does_not_end_the_session(host: AgentHost, service: ScriptedService):
    """It is left out once it is refused."""
    service.play(*[response_events(text) for text in ("Seen.", "Yes.", "Bye.")])
    url = "https://example.org/a.png"
    question = [{"type": "input_text", "text": "Look"}, {"type": "input_image", "image_url": url}]
    reply = host.run("Responsesunknown", {"message": question, "session_id": "expired"})
    assert reply.status_code == 200, reply.text
    service.find_violation = lambda body: (
        (400, {"error": {"message": "Timeout while downloading the image."}}) if "input_image" in str(body) else None
    )
    run(host, "Responsesunknown", "expired")
    run(host, "Responsesunknown", "expired")
    assert len(service.refusals) == 1
    assert f"[file: image/png, {url}; not sent" in str(service.bodies[-1])


CLAUDES_CALLS = {
    "bash": {"command": "ls"},
    "str_replace_based_edit_tool": {"command": "view", "path": "/a.py"},
    "computer": {"action": "screenshot"},
    "memory": {"command": "view", "path": "/memories"},
}
GEMINIS_CALLS = {"click_at": {"x": 500, "y": 20}, "navigate": {"url": "https://example.org"}}
SQL: dict[str, Any] = {"id": "call_1", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}
SQL_FRAGMENTS = (SQL | {"custom": {"name": "sql", "input": "SEL"}}, {"custom": {"input": "ECT 1"}})
LOOK: dict[str, Any] = {"id": "call_2", "type": "function", "function": {"name": "look", "arguments": "{}"}}
PROGRAM = {"type": "program", "id": "cm_1", "call_id": "call_p", "code": "await tools.locate()", "fingerprint": "f"}
LOCATE = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "locate", "arguments": "{}"}
LOCATE |= {"caller": {"type": "program", "caller_id": "call_p"}}
PROGRAM_OUTPUT = {"type": "program_output", "id": "cmo_1", "call_id": "call_p", "result": "Rome", "status": "completed"}
SEARCH = TOOL_SEARCH_CALL | {"call_id": "call_1", "execution": "client"}
FOUND_TOOLS = [{"type": "function", "name": "look"}]
SCREEN = [{"type": "text", "text": "Ready."}, {"type": "image", "data": PNG, "media_type": "image/png"}]
WAITING: dict[str, tuple[list[Any], list[Any], dict[str, Any], Any, list[Any]]] = {
    "ClaudeAtWork": (
        anthropic_response(
            anthropic_call("toolu_look", "look", "{}"),
            *(anthropic_call(f"toolu_{name}", name, json.dumps(call)) for name, call in CLAUDES_CALLS.items()),
            stop="tool_use",
        ),
        DONE["Claude"],
        CLAUDES_CALLS,
        SCREEN,
        [*([PNG, "Ready."] * len(CLAUDES_CALLS)), "bash_20250124", "text_editor_20250728", "computer_20250124"],
    ),
    "GeminiAtWork": (
        gemini_response(
            {"functionCall": {"name": "look", "args": {}}},
            *({"functionCall": {"name": name, "args": call}} for name, call in GEMINIS_CALLS.items()),
        ),
        DONE["Gemini"],
        GEMINIS_CALLS,
        SCREEN,
        [*([PNG, "Ready."] * len(GEMINIS_CALLS)), '["search"]'],
    ),
    "ChatOpenAI": (
        chat_response(
            *({"tool_calls": [{"index": 0, **fragment}]} for fragment in SQL_FRAGMENTS),
            {"tool_calls": [LOOK | {"index": 1}]},
        ),
        DONE["Chatunknown"],
        {"sql": {"input": "SELECT 1"}},
        "1 row",
        [SQL, LOOK, {"role": "tool", "tool_call_id": "call_1", "content": "1 row"}],
    ),
    "a program": (
        items_events(PROGRAM, LOCATE),
        items_events(PROGRAM_OUTPUT, *DONE["Responsesunknown"][-1]["response"]["output"]),
        {"locate": {}},
        "Rome",
        [PROGRAM, LOCATE, PROGRAM_OUTPUT],
    ),
    "a search for tools": (
        items_events(SEARCH),
        DONE["Responsesunknown"],
        {"tool_search": SEARCH["arguments"]},
        FOUND_TOOLS,
        [SEARCH, {"type": "tool_search_output", "call_id": "call_1", "execution": "client", "tools": FOUND_TOOLS}],
    ),
}
"""Agent, or what one of Responses does → the answer that calls, the last one, what waits, its result, what is sent."""


def has_value(sent: Any, value: Any) -> bool:
    """Say whether a request has a text, or an object with these fields."""
    if isinstance(value, str):
        return value in json.dumps(sent)
    inner = sent.values() if isinstance(sent, dict) else sent if isinstance(sent, list) else ()
    return (isinstance(sent, dict) and value.items() <= sent.items()) or any(has_value(i, value) for i in inner)


@pytest.mark.parametrize("name", WAITING)
def test_a_call_that_the_services_client_runs_waits_for_the_caller(
    host: AgentHost, service: ScriptedService, name: str
):
    """A tool of the app runs at once; call and result are in the next turn's request as the service makes them."""
    answer, done, calls, result, expected_values = WAITING[name]
    agent = name if " " not in name else "Responsesunknown"
    service.play(answer, done, DONE.get(agent) or done)
    client_tools = [{"name": "locate", "parameters": {}}] if "locate" in calls else []
    body = {"message": "Look", "session_id": f"waits-{len(name)}", "client_tools": client_tools}
    turn = host.run(agent, body).json()
    assert turn["status"] == "waiting", turn
    pending = {call["name"]: (call["kind"], call["arguments"]) for call in turn["pending_calls"]}
    assert pending == {name: ("client_tool", arguments) for name, arguments in calls.items()}
    answers = [{"call_id": call["call_id"], "result": result} for call in turn["pending_calls"]]
    assert approve(turn, *answers).status_code == 200
    ended_turn = wait_until(lambda: read_ended_turn(turn))
    assert ended_turn["response"] == "Done.", ended_turn
    assert run(host, agent, body["session_id"]) == "Done."
    sent = json.dumps(service.bodies[-1])
    assert [value for value in expected_values if not has_value(service.bodies[-1], value)] == []
    assert sent.count(PNG) == expected_values.count(PNG)
    client = "Completions" if agent == "ChatOpenAI" else agent.removesuffix("AtWork").removesuffix("unknown")
    assert find_violation(client, service.bodies[-1]) is None
    assert host.get(f"/agents/{agent}/sessions/{body['session_id']}/verify").json()["problems"] == []


def test_a_search_for_tools_without_a_result_is_left_out(host: AgentHost, service: ScriptedService):
    """Of a cancelled turn, in the next one."""
    service.play(items_events(SEARCH), response_events("Bye."))
    turn = host.run("Responsesunknown", {"message": "Look", "session_id": "tools"}).json()
    assert requests.post(f"{turn['turn_url']}/cancel").ok
    assert run(host, "Responsesunknown", "tools") == "Bye."
    assert "tool_search_call" not in json.dumps(service.bodies[-1])


def read_steps(host: AgentHost, agent: str, session: str, turn_id: str) -> list[dict[str, Any]]:
    """Read the steps of a turn."""
    return host.get(f"/agents/{agent}/sessions/{session}/turns/{turn_id}/steps").json()["steps"]


@pytest.mark.parametrize("agent", ["Gemini", "Chatunknown"])
def test_an_answer_with_calls_ended_with_them(host: AgentHost, service: ScriptedService, agent: str):
    """Whatever the service says: Gemini says STOP, and others send nothing but ``[DONE]``."""
    calling = gemini_response({"functionCall": {"name": "look", "args": {}}})
    if agent != "Gemini":
        calling = call_chunks("abcdefghi", "{}")
        del calling[-3]
    service.play(calling, DONE[agent])
    answer = host.run(agent, {"message": "Look", "session_id": f"ended-{agent}"}).json()
    steps = read_steps(host, agent, f"ended-{agent}", answer["turn_id"])
    assert [step["finish_reason"] for step in steps if step["kind"] == "model_call"] == ["tool_calls", "stop"]


URL = "https://example.org/a"


@pytest.mark.parametrize("form", [{"0": {"title": "A", "url": URL}}, [{"title": "A", "url": URL}]])
def test_references_of_mistral_are_sources_of_a_tool(host: AgentHost, service: ScriptedService, form: Any):
    """An id names an element of the JSON that a tool has returned; a reference may have the text that it is for."""
    chunks = [{"type": "text", "text": "It is "}, {"type": "reference", "reference_ids": ["0", 3], "text": "wet"}]
    what = json.dumps({"raw": json.dumps(form)})
    service.play(call_chunks("abcdefghi", what, name="recite"), chat_response({"content": chunks}))
    answer = host.run("ChatMistral", {"message": "Look", "session_id": f"references-{len(what)}"}).json()
    place = {"start": 6, "end": 9}
    assert answer["response"] == "It is wet"
    assert answer["citations"] == [place | {"title": "A", "url": URL}, place | {"title": "reference 3"}]


def read_events(host: AgentHost, agent: str, session: str, answer: dict[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Read the data of an ended turn's events of some names."""
    return [event.data for event in read_turn(host, agent, session, answer) if event.name.startswith(prefix)]


def read_turn(host: AgentHost, agent: str, session: str, answer: dict[str, Any]) -> list[Any]:
    """Read an ended turn's events."""
    url = f"{host.url}/api/agents/{agent}/sessions/{session}/turns/{answer['turn_id']}/events"
    with requests.get(url, stream=True) as stream:
        return list(read_stream(stream))


*_, _LAST = response_events("Found.")
(TEXT,) = _LAST["response"]["output"]


def test_searches_count_although_the_end_does_not_list_them(host: AgentHost, service: ScriptedService):
    """A service may leave out of its last event what it has streamed; a page that was opened is no search."""
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "a"},
    }
    page = search | {"id": "ws_2", "action": {"type": "open_page", "url": "https://example.org"}}
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    service.play(items_events(search, page, TEXT, output=[], usage=usage | details))
    answer = host.run("Responsesunknown", {"message": "Look", "session_id": "searches"}).json()
    assert (answer["response"], answer["usage"]["web_search_count"]) == ("Found.", 1)


def test_what_geminis_code_has_made_is_a_file_of_its_call(host: AgentHost, service: ScriptedService):
    """An image behind the result of a run is its output, and a message goes on where the service stopped it."""
    parts = [
        {"executableCode": {"language": "PYTHON", "code": "plot()"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "ok"}},
        {"inlineData": {"mimeType": "image/png", "data": PNG}},
    ]
    stopped = gemini_response(*parts, {"text": "Here "})
    stopped[-1]["candidates"][0] |= {"finishReason": "CONTINUATION", "continuationToken": "dG9rZW4="}
    service.play(stopped, gemini_response({"text": "it is."}), gemini_response({"text": "Bye."}))
    answer = host.run("Gemini", {"message": "Look", "session_id": "plot"}).json()
    assert [message["text"] for message in answer["messages"]] == ["Here it is."]
    (completed,) = read_events(host, "Gemini", "plot", answer, "tool.completed")
    assert [file["media_type"] for file in completed["files"]] == ["image/png"]
    assert requests.get(completed["files"][0]["file_url"]).content == b"png"
    assert service.bodies[1]["continuationToken"] == "dG9rZW4="
    assert run(host, "Gemini", "plot") == "Bye."
    assert service.bodies[-1]["contents"][1]["parts"] == [*parts, {"text": "Here it is."}]


@pytest.mark.parametrize("stop", ["pause_turn", "compaction"])
def test_claude_goes_on_after_a_pause_whatever_the_ids(host: AgentHost, service: ScriptedService, stop: str):
    """Each answer has its own messages, also where all have one id; blocks of an unknown type are all told."""
    listings = [{"type": "mcp_tool_listing", "mcp_server_name": name, "tools": []} for name in ("a", "b")]
    usage = {"iterations": [{"type": "fallback_message", "model": "claude-other", "input_tokens": 3}]}
    last = anthropic_response(anthropic_text("Rest."))
    last[-2]["usage"] |= usage
    service.play(anthropic_response(*listings, anthropic_text("Part."), stop=stop), last)
    answer = host.run("Claude", {"message": "Look", "session_id": stop}).json()
    assert (answer["response"], answer["finish_reason"]) == ("Part.\n\nRest.", "stop")
    started = read_events(host, "Claude", stop, answer, "tool.started")
    assert [event["arguments"]["mcp_server_name"] for event in started] == ["a", "b"]
    turn = host.get(f"/agents/Claude/sessions/{stop}/turns/{answer['turn_id']}").json()
    assert turn["model"] == "claude-other"
    texts = [{"type": "text", "text": text} for text in ("Part.", "Rest.")]
    assert service.bodies[1]["messages"][-1]["content"] == [*listings, texts[0]]
    service.play(anthropic_response(anthropic_text("Bye.")))
    assert run(host, "Claude", stop) == "Bye."
    assert service.bodies[-1]["messages"][1]["content"] == [*listings, *texts]


def test_what_only_the_deltas_of_a_service_have_is_kept(host: AgentHost, service: ScriptedService):
    """Some end an item without its content, and name neither an id nor a field that OpenAI does."""
    first, *deltas, last = response_events("It is mild.")
    (text,) = last["response"]["output"]
    run_code = {"id": "ci_1", "type": "code_interpreter_call", "status": "completed", "arguments": '{"code": "1 + 1"}'}
    pages = [{"type": "page_list", "arguments": f'{{"page": {number}}}'} for number in (1, 2)]
    bare = text | {"content": []}
    done = [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate((bare, run_code, *pages))
    ]
    deltas = [event for event in deltas if event["type"] != "response.output_item.done"]
    completed = {"type": "response.completed", "response": last["response"] | {"output": [bare, run_code, *pages]}}
    service.play([first, *deltas, *done, completed], response_events("Bye.", "resp_2"))
    answer = host.run("Responsesunknown", {"message": "Look", "session_id": "deltas"}).json()
    assert answer["response"] == "It is mild.", answer
    started = {
        event["call_id"]: event["arguments"]
        for event in read_events(host, "Responsesunknown", "deltas", answer, "tool.started")
    }
    ended = read_events(host, "Responsesunknown", "deltas", answer, "tool.completed")
    arguments = [event.get("arguments", started[event["call_id"]]) for event in ended]
    assert arguments == ['{"code": "1 + 1"}', '{"page": 1}', '{"page": 2}']
    assert run(host, "Responsesunknown", "deltas") == "Bye."
    assert "It is mild." in json.dumps(service.bodies[-1]["input"])


def test_an_error_behind_the_end_of_an_answer_takes_nothing_from_it(host: AgentHost, service: ScriptedService):
    """OpenRouter tells that a limit was reached so; the answer was cut, and its tokens count."""
    chunks = chat_response({"content": "It is"}, finish="length")
    chunks[-2]["error"] = {"code": 502, "message": "Token limit reached"}
    service.play(chunks)
    answer = host.run("Chatunknown", {"message": "Look", "session_id": "limit"}).json()
    assert (answer["response"], answer["status"]) == ("It is", "incomplete")
    assert answer["usage"]["output_token_count"] == 2
    assert len(service.bodies) == 1
