"""Responses that a service may not send, and calls that it would not accept back: the session continues."""

import json
import re
from collections.abc import Iterator

import pytest
import requests

from tests.durable_agent_host.bounded_lab import bounded_host, bounded_model
from tests.durable_agent_host.hostile_model import HostileModel, chat_chunk, events, stream
from tests.durable_agent_host.hostile_streams import tool_call_stream
from tests.durable_agent_host.service_rules import find_violation
from tests.durable_agent_host.test_scenarios_hostile_model import COMPLETE_STREAMS
from tests.kit import AgentHost, exported

CLIENTS = ("Responses", "Completions", "Claude", "Gemini")
ARGUMENTS = '{"words": 2}'
NAMES = {"none": "", "spaces": "no such tool", "long": "x" * 300, "control": "a\0b", "letters": "查询", "number": "7"}


@pytest.fixture(scope="module")
def _model() -> Iterator[HostileModel]:
    with bounded_model() as running:
        yield running


@pytest.fixture(scope="module")
def host(_model: HostileModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host with an agent of every kind of client, whose turns may be long."""
    folder = tmp_path_factory.mktemp("odd")
    more = {"DURABLE_AGENT_HOST_MAX_MODEL_CALLS": "100"}
    with bounded_host(folder / "data", _model, folder / "effects.txt", **more) as running:
        yield running


@pytest.fixture
def model(_model: HostileModel) -> HostileModel:
    """The endpoint, with nothing scripted and nothing received."""
    _model.play()
    return _model


def run_turn(host: AgentHost, agent: str, session: str, text: str = "Good morning") -> str:
    """Run a turn that succeeds; gives the answer."""
    reply = host.run(agent, {"message": text, "session_id": session})
    assert reply.status_code == 200, reply.text
    return reply.json()["response"]


def last_request(client: str, model: HostileModel) -> dict:
    """Give the last request, which the service accepts."""
    body = json.loads(model.received[-1].body)
    assert find_violation(client, body) is None
    return body


def in_half(response: bytes) -> bytes:
    """Put half of a surrogate pair, as JSON's escape, wherever an answer has an X."""
    return stream(response.replace(b"X", b"\\ud83d"))


@pytest.mark.drawn(2)
@pytest.mark.parametrize("client", CLIENTS)
def test_half_a_character_in_a_text_is_sent_back_as_the_replacement(host: AgentHost, model: HostileModel, client: str):
    """The response is stored verbatim, and the next turn continues from it."""
    spoken = COMPLETE_STREAMS[client].partition(b"\r\n\r\n")[2].replace(b"Hello.", b"caf\\u00e9 X!")
    if client == "Responses":  # whose text comes by the character
        spoken = spoken.replace(b'"delta": "H"', b'"delta": "caf\\u00e9 X!"')
    model.play(in_half(spoken), COMPLETE_STREAMS[client])
    assert run_turn(host, client, "half-text").endswith("\ud83d!")
    assert run_turn(host, client, "half-text", "And now?") == "Hello."
    assert "café \\ufffd!" in json.dumps(last_request(client, model), ensure_ascii=True).replace("\\u00e9", "é")


@pytest.mark.drawn(2)
@pytest.mark.parametrize("client", CLIENTS)
def test_half_a_character_in_a_call_and_its_result_does_not_block_the_session(
    host: AgentHost, model: HostileModel, client: str
):
    """The running turn continues after it, and so does the next one."""
    tool_call = tool_call_stream(client, [("call_X", '{"words": 1, "X": "X"}')])
    model.play(in_half(tool_call), COMPLETE_STREAMS[client], COMPLETE_STREAMS[client])
    assert run_turn(host, client, "half-call") == "Hello."
    assert run_turn(host, client, "half-call", "And now?") == "Hello."
    assert "\\ud83d" not in json.dumps(last_request(client, model))


@pytest.mark.drawn(3)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("word_count", "result"), [(-15_000, "[" * 15_000), (-300, '{"a":' * 300 + "0" + "}" * 300)])
def test_a_result_that_no_reader_of_json_takes_is_sent_as_a_text(
    host: AgentHost, model: HostileModel, client: str, word_count: int, result: str
):
    """The model gets it to the letter, now and in the next turn."""
    model.play(
        stream(tool_call_stream(client, [("call_1", f'{{"words": {word_count}}}')])),
        COMPLETE_STREAMS[client],
        COMPLETE_STREAMS[client],
    )
    for text in ("Good morning", "And now?"):
        assert run_turn(host, client, f"levels{word_count}", text) == "Hello."
        assert json.dumps(result) in json.dumps(last_request(client, model))


@pytest.mark.drawn(3)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("levels", [99, 100])
def test_deep_arguments_leave_the_conversation_intact(host: AgentHost, model: HostileModel, client: str, levels: int):
    """From 101 levels on, the tool does not run and the model gets an error; the session has nothing to repair."""
    session, deep = f"deep{levels}", "[" * levels + "1" + "]" * levels
    model.play(
        stream(tool_call_stream(client, [("call_1", f'{{"words": 2, "deep": {deep}}}')])),
        COMPLETE_STREAMS[client],
        COMPLETE_STREAMS[client],
    )
    assert run_turn(host, client, session) == "Hello."
    path = f"/agents/{client}/sessions/{session}"
    assert host.get(f"{path}/verify").json()["problems"] == []
    view = host.get(path).json()
    assert not view.get("problems")
    assert deep in json.dumps(view).replace(" ", "").replace("\\", "")
    assert run_turn(host, client, session, "And now?") == "Hello."
    assert ("nested more than 100 levels deep" in json.dumps(last_request(client, model))) == (levels >= 100)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("client", CLIENTS)
def test_arguments_that_name_a_class_do_not_end_the_turn(host: AgentHost, model: HostileModel, client: str):
    """The tool does not run and the model gets an error, also for arguments as JSON objects; the session continues."""
    arguments = '{"words": 2, "more": {"__class__": "Fraction", "__module__": "fractions", "__data__": 4}}'
    model.play(
        stream(tool_call_stream(client, [("call_1", arguments)])), COMPLETE_STREAMS[client], COMPLETE_STREAMS[client]
    )
    assert run_turn(host, client, "named") == "Hello."
    assert "give the fields other names" in json.dumps(last_request(client, model))
    assert host.get(f"/agents/{client}/sessions/named/verify").json()["problems"] == []
    assert run_turn(host, client, "named", "And now?") == "Hello."
    assert json.dumps(json.loads(arguments)["more"]) in json.dumps(last_request(client, model)).replace("\\", "")


@pytest.mark.drawn(1)
@pytest.mark.parametrize("levels", [190, 5000])
def test_structured_arguments_over_the_depth_limit_fail_the_turn(host: AgentHost, model: HostileModel, levels: int):
    """The session continues with its complete conversation."""
    deep = "[" * levels + "]" * levels
    model.play(fallback=stream(tool_call_stream("Gemini", [("call_1", f'{{"words": 2, "deep": {deep}}}')])))
    assert "nested more than 180 levels deep" in problem(host, "Gemini", f"no-room{levels}")
    model.play(fallback=COMPLETE_STREAMS["Gemini"])
    assert run_turn(host, "Gemini", f"no-room{levels}") == "Hello."
    assert host.get(f"/agents/Gemini/sessions/no-room{levels}/verify").json()["problems"] == []


@pytest.mark.drawn(3)
@pytest.mark.parametrize("literal", ["NaN", "1e999"])
@pytest.mark.parametrize("client", CLIENTS)
def test_non_json_numbers_in_arguments_do_not_block_the_session(
    host: AgentHost, model: HostileModel, client: str, literal: str
):
    """The model gets an error where arguments are strings; otherwise the turn fails with 502. The session continues."""
    session = f"number{literal}"
    model.play(
        stream(tool_call_stream(client, [("call_1", f'{{"words": {literal}}}')])),
        COMPLETE_STREAMS[client],
        COMPLETE_STREAMS[client],
    )
    if client == "Gemini":
        assert "cannot be stored" in problem(host, client, session)
    else:
        assert run_turn(host, client, session) == "Hello."
        assert "Argument parsing failed" in json.dumps(last_request(client, model))
        assert host.get(f"/agents/{client}/sessions/{session}/verify").json()["problems"] == []
    assert run_turn(host, client, session, "And now?") == "Hello."


@pytest.mark.drawn(2)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_session_continues_after_the_iteration_limit(host: AgentHost, model: HostileModel, client: str):
    """The call without a result is sent with a result that says so."""
    responses = [stream(tool_call_stream(client, [(f"call_{index}", ARGUMENTS)])) for index in range(60)]
    model.play(*responses)
    assert "limit" in run_turn(host, client, "limit")
    model.play(fallback=COMPLETE_STREAMS[client])
    assert run_turn(host, client, "limit", "And now?") == "Hello."
    assert ("is not known" in json.dumps(last_request(client, model))) == (
        client != "Gemini"
    )  # the last call is left out


@pytest.mark.drawn(2)
@pytest.mark.parametrize("client", CLIENTS)
def test_calls_that_share_an_id_have_their_results(host: AgentHost, model: HostileModel, client: str):
    """Within an answer and over turns, the service accepts them in the running turn and in the next one."""
    tool_call = stream(tool_call_stream(client, [("call_1", ARGUMENTS), ("call_1", '{"words": 3}')]))
    model.play(tool_call, COMPLETE_STREAMS[client], tool_call, COMPLETE_STREAMS[client])
    for text in ("Good morning", "And now?"):
        assert run_turn(host, client, "shared", text) == "Hello."
        last_request(client, model)
    if client != "Responses":  # where the framework runs calls that share an id once
        sent = json.dumps(last_request(client, model))
        assert sent.count("word word word ") == 2
        assert "is not known" not in sent


USAGE = {
    "Responses": (
        b'"tools": []',
        b'"tools": [], "usage": {"input_tokens": #, "output_tokens": #, "total_tokens": #, "more": {"tokens": #}}',
    ),
    "Completions": (
        b'"model": "m"',
        b'"model": "m", "usage": {"prompt_tokens": #, "completion_tokens": #, "total_tokens": #}',
    ),
    "Claude": (b'_tokens": 1', b'_tokens": #'),
    "Gemini": (
        b'"candidates"',
        b'"usageMetadata": {"promptTokenCount": #, "candidatesTokenCount": #, "totalTokenCount": #}, "candidates"',
    ),
}
"""What an answer has → the same with figures of usage, each as a #."""


def reject_constant(word: str) -> None:
    """Refuse what Python's reader takes for a number and JSON does not know."""
    raise AssertionError(word)


@pytest.mark.drawn(4)
@pytest.mark.parametrize(  # Google's SDK refuses an answer with such a figure
    ("client", "figure"),
    [
        *(("Responses", figure) for figure in ("1e999", "NaN", "-5", "1e300", "9" * 30, '"many"', "[1]")),
        *((client, figure) for client in CLIENTS[1:3] for figure in ("NaN", '"many"')),
    ],
)
def test_invalid_usage_figures_are_ignored(host: AgentHost, model: HostileModel, client: str, figure: str):
    """The answer is the answer, and what is shown of the turn is JSON without the figures."""
    original, replacement = USAGE[client]
    spoken = COMPLETE_STREAMS[client].partition(b"\r\n\r\n")[2]
    model.play(stream(spoken.replace(original, replacement.replace(b"#", figure.encode()))))
    session = f"usage-{len(figure)}-{figure.encode()[:2].hex()}"
    reply = host.run(client, {"message": "Good morning", "session_id": session})
    assert (reply.status_code, reply.json()["response"]) == (200, "Hello.")
    url = f"{host.url}/api/agents/{client}/sessions/{session}"
    turn = f"{url}/turns/{reply.headers['x-ms-turn-id']}"
    for view_url in (url, turn, f"{turn}/steps", f"{turn}/calls", f"{url}/verify"):
        response = requests.get(view_url)
        assert response.status_code == 200, response.text
        json.loads(response.text, parse_constant=reject_constant)
    (call,) = [step for step in requests.get(f"{turn}/steps").json()["steps"] if "usage" in step]
    assert not any(count for name, count in (call["usage"] or {}).items() if name.endswith("_token_count"))
    export = requests.get(f"{url}/export")
    assert export.status_code == 200
    assert not any(word in export.text for word in ("NaN", "Infinity", "e+300", "9" * 30))
    assert all(word not in requests.get(f"{turn}/events").text for word in ("NaN", "Infinity"))


ID_MARK = b'"here"'
"""The place of an id or a name in a scripted answer."""


def problem(host: AgentHost, agent: str, session: str) -> str:
    """Run a turn that fails and leaves no trace; gives the problem's sentence."""
    reply = host.run(agent, {"message": "Good morning", "session_id": session})
    assert reply.status_code == 502, reply.text
    assert host.session(agent, session)["messages"] == []
    return reply.json()["detail"]


@pytest.mark.parametrize("client", CLIENTS[:3])
def test_a_number_for_an_id_becomes_a_text(host: AgentHost, model: HostileModel, client: str):
    """In what is stored and in what is sent back, of the call and of its result."""
    model.play(
        stream(tool_call_stream(client, [("here", ARGUMENTS)]).replace(ID_MARK, b"12345")),
        COMPLETE_STREAMS[client],
        COMPLETE_STREAMS[client],
    )
    assert run_turn(host, client, "number-id") == "Hello."
    assert run_turn(host, client, "number-id", "And now?") == "Hello."
    sent = json.dumps(last_request(client, model))
    assert sent.count('"12345"') == 2
    assert ": 12345" not in sent
    verification = requests.get(f"{host.url}/api/agents/{client}/sessions/number-id/verify")
    assert not any("a text or null is expected" in item["problem"] for item in verification.json()["problems"])


@pytest.mark.parametrize("client", CLIENTS[:2])
def test_a_number_for_a_name_becomes_a_text(host: AgentHost, model: HostileModel, client: str):
    """The model gets an error that there is no such tool."""
    tool_call = tool_call_stream(client, [("call_1", ARGUMENTS)]).replace(b'"name": "say"', b'"name": 7')
    model.play(stream(tool_call), COMPLETE_STREAMS[client], COMPLETE_STREAMS[client])
    assert run_turn(host, client, "number-name") == "Hello."
    assert run_turn(host, client, "number-name", "And now?") == "Hello."
    sent = json.dumps(last_request(client, model))
    assert '"name": "_7"' in sent
    assert '"name": 7' not in sent


@pytest.mark.parametrize("client", CLIENTS[:3])
def test_an_id_that_is_neither_text_nor_number_fails_the_turn(host: AgentHost, model: HostileModel, client: str):
    """The problem names it and shows it."""
    model.play(fallback=stream(tool_call_stream(client, [("here", ARGUMENTS)]).replace(ID_MARK, b'["x"]')))
    assert "id' is no text: ['x']" in problem(host, client, "list-id")


def test_a_number_for_a_finish_reason_becomes_a_text(host: AgentHost, model: HostileModel):
    """It is shown as the service's word."""
    spoken = COMPLETE_STREAMS["Completions"].partition(b"\r\n\r\n")[2]
    model.play(stream(spoken.replace(b'"finish_reason": "stop"', b'"finish_reason": 5')))
    reply = host.run("Completions", {"message": "Good morning", "session_id": "reason"})
    url = f"{host.url}/api/agents/Completions/sessions/reason/turns/{reply.headers['x-ms-turn-id']}/steps"
    assert [step["finish_reason"] for step in requests.get(url, timeout=60).json()["steps"] if "usage" in step] == ["5"]


ODD_FIELDS = [
    ("Responses", b'"created_at": 1', b'"created_at": 1e300'),
    ("Responses", b'data: {"type": "response.created"', b'data: [1]\n\ndata: {"type": "response.created"'),
    ("Completions", b'"created": 1', b'"created": 1e300'),
    ("Completions", b'data: {"id"', b'data: [1]\n\ndata: {"id"'),
    ("Completions", b'"model": "m"', b'"model": [7, "m"]'),
]


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("client", "original", "replacement"), ODD_FIELDS)
def test_odd_fields_of_a_complete_response_do_not_fail_the_turn(
    host: AgentHost, model: HostileModel, client: str, original: bytes, replacement: bytes
):
    """Nothing in them is needed for the answer."""
    spoken = COMPLETE_STREAMS[client].partition(b"\r\n\r\n")[2]
    assert original in spoken
    model.play(stream(spoken.replace(original, replacement)))
    assert run_turn(host, client, f"odd-{len(replacement)}") == "Hello."


def test_an_unreadable_response_fails_the_turn_with_a_sentence(host: AgentHost, model: HostileModel):
    """It says what to check, and names no class; the log has the reason."""
    spoken = COMPLETE_STREAMS["Gemini"].partition(b"\r\n\r\n")[2]
    odd_usage = b'"usageMetadata": {"promptTokenCount": [1]}, "candidates"'
    model.play(fallback=stream(spoken.replace(b'"candidates"', odd_usage)))
    detail = problem(host, "Gemini", "unreadable")
    assert detail.startswith("the model's service sent an answer that cannot be read: check "), detail
    assert "Client" not in detail
    assert "Error" not in detail


SCHEMA = {"type": "object", "properties": {"a": {"type": "number", "maximum": 10}}}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("response_format", [SCHEMA, {"type": "json_object"}], ids=["schema", "any"])
def test_a_structured_response_with_a_non_json_number_fails_the_turn(
    host: AgentHost, model: HostileModel, literal: str, response_format: dict
):
    """The turn fails as for any response that is not JSON; every route returns JSON, and the session continues."""
    model.play(fallback=stream(events(chat_chunk(f'{{"a": {literal}}}'), chat_chunk(finish="stop"))))
    session = f"structured-{len(response_format)}-{literal}"
    body = {"message": "Count", "session_id": session, "response_format": response_format}
    reply = host.run("Completions", body)
    assert reply.status_code == 502
    assert "is not JSON, as response_format asks" in reply.json()["detail"]
    url = f"{host.url}/api/agents/Completions/sessions/{session}"
    turn = f"{url}/turns/{reply.headers['x-ms-turn-id']}"
    views = [requests.get(view_url).text for view_url in (url, turn, f"{turn}/steps", f"{turn}/calls")]
    for text in [*views, *requests.get(f"{url}/export").text.splitlines()]:
        json.loads(text, parse_constant=reject_constant)
    for line in requests.get(f"{turn}/events").text.splitlines():
        if line.startswith("data: "):
            json.loads(line.removeprefix("data: "), parse_constant=reject_constant)
    model.play(fallback=COMPLETE_STREAMS["Completions"])
    assert run_turn(host, "Completions", session, "And now?") == "Hello."


@pytest.mark.parametrize("literal", ["NaN", "-Infinity", "1e999"])
def test_a_body_with_a_non_json_number_is_rejected(host: AgentHost, model: HostileModel, literal: str):
    """The answer is a 400 with a sentence, for a field that the turn would take and for others; no model is asked."""
    headers = {"content-type": "application/json"}
    for field in (f'"options": {{"temperature": {literal}}}', f'"more": [{literal}]'):
        body = f'{{"message": "x", {field}}}'
        response = requests.post(f"{host.url}/api/agents/Completions/run", data=body, headers=headers)
        assert (response.status_code, "number" in response.json()["detail"]) == (400, True), response.text
    assert model.received == []


def call_by_name(client: str, name: str) -> bytes:
    """Write an answer that calls a tool by a name."""
    return stream(tool_call_stream(client, [("call_1", ARGUMENTS)]).replace(b'"say"', json.dumps(name).encode()))


def call_without_start(client: str) -> bytes:
    """Build a response with the arguments of a call that was never started."""
    tool_call = tool_call_stream(client, [("call_1", ARGUMENTS)])
    if client == "Claude":
        return stream(
            b"".join(block + b"\n\n" for block in tool_call.split(b"\n\n") if b"content_block_start" not in block)
        )
    return stream(tool_call.replace(b'"name": "say", ', b""))


ODD: list[tuple[str, str, bytes]] = [
    *((client, case, call_by_name(client, name)) for client in CLIENTS for case, name in NAMES.items()),
    *((client, "unannounced", call_without_start(client)) for client in ("Completions", "Claude")),
    *(
        ("Claude", f"input-{index}", stream(tool_call_stream("Claude", [("call_1", text)])))
        for index, text in enumerate(["[1]", '"text"', "null", "7"])
    ),
]
"""Client, case, and an answer with a call that its service would not take back."""
odd = pytest.mark.parametrize(("client", "case", "tool_call"), ODD, ids=[f"{client}-{case}" for client, case, _ in ODD])


def run_next_turn(host: AgentHost, model: HostileModel, client: str, session: str) -> str:
    """Run a turn that succeeds, with a request that the service accepts; gives what was sent."""
    model.play(COMPLETE_STREAMS[client])
    assert run_turn(host, client, session, "And now?") == "Hello."
    return last_request_text(client, model)


def last_request_text(client: str, model: HostileModel) -> str:
    """Give the last request, which the service accepts and which has the call with its result."""
    text = json.dumps(last_request(client, model))
    assert any(kind in text for kind in ('"function_call"', '"tool_calls"', '"tool_use"', '"functionCall"'))
    assert "is not known" not in text
    return text


@pytest.mark.drawn(3)
@odd
def test_an_odd_call_is_sent_as_the_service_accepts_it(
    host: AgentHost, model: HostileModel, client: str, case: str, tool_call: bytes
):
    """In the running turn, with its result, and as the same text in the next one; the record has it as it came."""
    model.play(tool_call, COMPLETE_STREAMS[client])
    session = f"odd-{case}"
    run_turn(host, client, session)
    first = last_request_text(client, model)
    later = run_next_turn(host, model, client, session)
    assert names_in(later) >= names_in(first)
    export = exported(requests.get(f"{host.url}/api/agents/{client}/sessions/{session}/export").text)
    if case in NAMES:
        assert json.dumps(NAMES[case]) in names_in(json.dumps(export))


def names_in(text: str) -> set[str]:
    """List the names in JSON."""
    return set(re.findall('"name": ("[^"]*")', text))
