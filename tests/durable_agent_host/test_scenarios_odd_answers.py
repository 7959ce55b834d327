"""Answers that a service may not send, or that it would not take back: the session goes on."""

import json
from collections.abc import Iterator

import pytest
import requests

from tests.durable_agent_host.bounded_lab import bounded_host, bounded_model
from tests.durable_agent_host.hostile_model import HostileModel, chat_chunk, events, stream
from tests.durable_agent_host.hostile_streams import tool_call_stream
from tests.durable_agent_host.service_rules import find_violation
from tests.durable_agent_host.test_scenarios_hostile_model import COMPLETE_STREAMS
from tests.kit import AgentHost

CLIENTS = ("Responses", "Completions", "Claude", "Gemini")
ARGUMENTS = '{"words": 2}'


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


def said(host: AgentHost, agent: str, session: str, text: str = "Good morning") -> str:
    """Run a turn that succeeds; gives the answer."""
    reply = host.run(agent, {"message": text, "session_id": session})
    assert reply.status_code == 200, reply.text
    return reply.json()["response"]


def last_request(client: str, model: HostileModel) -> dict:
    """Give the last request, which the service accepts."""
    body = json.loads(model.received[-1].body)
    assert find_violation(client, body) is None
    return body


def in_half(answer: bytes) -> bytes:
    """Put half of a surrogate pair, as JSON's escape, wherever an answer has an X."""
    return stream(answer.replace(b"X", b"\\ud83d"))


@pytest.mark.parametrize("client", CLIENTS)
def test_half_a_character_in_a_text_is_sent_back_as_the_replacement(host: AgentHost, model: HostileModel, client: str):
    """The answer is stored to the letter, and the next turn goes on from it."""
    spoken = COMPLETE_STREAMS[client].partition(b"\r\n\r\n")[2].replace(b"Hello.", b"caf\\u00e9 X!")
    if client == "Responses":  # whose text comes by the character
        spoken = spoken.replace(b'"delta": "H"', b'"delta": "caf\\u00e9 X!"')
    model.play(in_half(spoken), COMPLETE_STREAMS[client])
    assert said(host, client, "half-text").endswith("\ud83d!")
    assert said(host, client, "half-text", "And now?") == "Hello."
    assert "café \\ufffd!" in json.dumps(last_request(client, model), ensure_ascii=True).replace("\\u00e9", "é")


@pytest.mark.parametrize("client", CLIENTS)
def test_half_a_character_in_a_call_and_its_result_is_no_dead_end(host: AgentHost, model: HostileModel, client: str):
    """The running turn goes on after it, and so does the next one."""
    asked = tool_call_stream(client, [("call_X", '{"words": 1, "X": "X"}')])
    model.play(in_half(asked), COMPLETE_STREAMS[client], COMPLETE_STREAMS[client])
    assert said(host, client, "half-call") == "Hello."
    assert said(host, client, "half-call", "And now?") == "Hello."
    assert "\\ud83d" not in json.dumps(last_request(client, model))


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("words", "result"), [(-15_000, "[" * 15_000), (-300, '{"a":' * 300 + "0" + "}" * 300)])
def test_a_result_that_no_reader_of_json_takes_is_sent_as_a_text(
    host: AgentHost, model: HostileModel, client: str, words: int, result: str
):
    """The model gets it to the letter, now and in the next turn."""
    model.play(
        stream(tool_call_stream(client, [("call_1", f'{{"words": {words}}}')])),
        COMPLETE_STREAMS[client],
        COMPLETE_STREAMS[client],
    )
    for text in ("Good morning", "And now?"):
        assert said(host, client, f"levels{words}", text) == "Hello."
        assert json.dumps(result) in json.dumps(last_request(client, model))


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("levels", [99, 100])
def test_arguments_of_many_levels_leave_the_conversation_whole(
    host: AgentHost, model: HostileModel, client: str, levels: int
):
    """From 101 levels on, the tool does not run and the model is told; the session has nothing to repair."""
    session, deep = f"deep{levels}", "[" * levels + "1" + "]" * levels
    model.play(
        stream(tool_call_stream(client, [("call_1", f'{{"words": 2, "deep": {deep}}}')])),
        COMPLETE_STREAMS[client],
        COMPLETE_STREAMS[client],
    )
    assert said(host, client, session) == "Hello."
    path = f"/agents/{client}/sessions/{session}"
    assert host.get(f"{path}/verify").json()["problems"] == []
    shown = host.get(path).json()
    assert not shown.get("problems")
    assert deep in json.dumps(shown).replace(" ", "").replace("\\", "")
    assert said(host, client, session, "And now?") == "Hello."
    assert ("nested more than 100 levels deep" in json.dumps(last_request(client, model))) == (levels >= 100)


@pytest.mark.parametrize("client", CLIENTS)
def test_arguments_that_name_a_class_do_not_end_the_turn(host: AgentHost, model: HostileModel, client: str):
    """The tool does not run and the model is told, also where arguments are no text; the session goes on."""
    arguments = '{"words": 2, "more": {"__class__": "Fraction", "__module__": "fractions", "__data__": 4}}'
    model.play(
        stream(tool_call_stream(client, [("call_1", arguments)])), COMPLETE_STREAMS[client], COMPLETE_STREAMS[client]
    )
    assert said(host, client, "named") == "Hello."
    assert "give the fields other names" in json.dumps(last_request(client, model))
    assert host.get(f"/agents/{client}/sessions/named/verify").json()["problems"] == []
    assert said(host, client, "named", "And now?") == "Hello."
    assert json.loads(arguments)["more"] == more_of(last_request(client, model))


def more_of(value: object) -> object:
    """Find the field ``more`` of the arguments in a request."""
    if isinstance(value, str):
        return more_of(json.loads(value)) if value.startswith("{") else None
    if isinstance(value, dict) and "more" in value:
        return value["more"]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for one in inner if (found := more_of(one)) is not None), None)


@pytest.mark.parametrize("levels", [190, 5000])
def test_arguments_that_are_no_text_and_have_no_room_fail_the_turn(host: AgentHost, model: HostileModel, levels: int):
    """The session goes on, whole."""
    deep = "[" * levels + "]" * levels
    model.play(fallback=stream(tool_call_stream("Gemini", [("call_1", f'{{"words": 2, "deep": {deep}}}')])))
    assert "nested more than 180 levels deep" in problem(host, "Gemini", f"no-room{levels}")
    model.play(fallback=COMPLETE_STREAMS["Gemini"])
    assert said(host, "Gemini", f"no-room{levels}") == "Hello."
    assert host.get(f"/agents/Gemini/sessions/no-room{levels}/verify").json()["problems"] == []


@pytest.mark.parametrize("number", ["NaN", "1e999"])
@pytest.mark.parametrize("client", CLIENTS)
def test_numbers_that_json_lacks_in_arguments_are_no_dead_end(
    host: AgentHost, model: HostileModel, client: str, number: str
):
    """The model is told where arguments are a text; elsewhere the turn fails with 502, and the session goes on."""
    session = f"number{number}"
    model.play(
        stream(tool_call_stream(client, [("call_1", f'{{"words": {number}}}')])),
        COMPLETE_STREAMS[client],
        COMPLETE_STREAMS[client],
    )
    if client == "Gemini":
        assert "cannot be stored" in problem(host, client, session)
    else:
        assert said(host, client, session) == "Hello."
        assert "Argument parsing failed" in json.dumps(last_request(client, model))
        assert host.get(f"/agents/{client}/sessions/{session}/verify").json()["problems"] == []
    assert said(host, client, session, "And now?") == "Hello."


@pytest.mark.parametrize("client", CLIENTS)
def test_a_turn_that_ends_at_the_limit_of_iterations_is_no_dead_end(host: AgentHost, model: HostileModel, client: str):
    """The call that no tool has answered is sent with a result that says so."""
    answers = [stream(tool_call_stream(client, [(f"call_{number}", ARGUMENTS)])) for number in range(60)]
    model.play(*answers)
    assert "limit" in said(host, client, "limit")
    model.play(fallback=COMPLETE_STREAMS[client])
    assert said(host, client, "limit", "And now?") == "Hello."
    assert ("is not known" in json.dumps(last_request(client, model))) == (
        client != "Gemini"
    )  # the last call is left out


@pytest.mark.parametrize("client", CLIENTS)
def test_calls_that_share_an_id_have_their_results(host: AgentHost, model: HostileModel, client: str):
    """Within an answer and over turns, the service accepts them in the running turn and in the next one."""
    asked = stream(tool_call_stream(client, [("call_1", ARGUMENTS), ("call_1", '{"words": 3}')]))
    model.play(asked, COMPLETE_STREAMS[client], asked, COMPLETE_STREAMS[client])
    for text in ("Good morning", "And now?"):
        assert said(host, client, "shared", text) == "Hello."
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


def no_number(word: str) -> None:
    """Refuse what Python's reader takes for a number and JSON does not know."""
    raise AssertionError(word)


@pytest.mark.parametrize(  # Google's SDK refuses an answer with such a figure
    ("client", "figure"),
    [
        *(("Responses", figure) for figure in ("1e999", "NaN", "-5", "1e300", "9" * 30, '"many"', "[1]")),
        *((client, figure) for client in CLIENTS[1:3] for figure in ("NaN", '"many"')),
    ],
)
def test_figures_that_count_nothing_are_as_none(host: AgentHost, model: HostileModel, client: str, figure: str):
    """The answer is the answer, and what is shown of the turn is JSON without the figures."""
    known, instead = USAGE[client]
    spoken = COMPLETE_STREAMS[client].partition(b"\r\n\r\n")[2]
    model.play(stream(spoken.replace(known, instead.replace(b"#", figure.encode()))))
    session = f"usage-{len(figure)}-{figure.encode()[:2].hex()}"
    reply = host.run(client, {"message": "Good morning", "session_id": session})
    assert (reply.status_code, reply.json()["response"]) == (200, "Hello.")
    url = f"{host.url}/api/agents/{client}/sessions/{session}"
    turn = f"{url}/turns/{reply.headers['x-ms-turn-id']}"
    for shown in (url, turn, f"{turn}/steps", f"{turn}/calls", f"{url}/verify"):
        said_of_it = requests.get(shown, timeout=60)
        assert said_of_it.status_code == 200, said_of_it.text
        json.loads(said_of_it.text, parse_constant=no_number)
    (call,) = [step for step in requests.get(f"{turn}/steps", timeout=60).json()["steps"] if "usage" in step]
    assert not any(count for name, count in (call["usage"] or {}).items() if name.endswith("_token_count"))
    exported = requests.get(f"{url}/export", timeout=60)
    assert exported.status_code == 200
    assert not any(word in exported.text for word in ("NaN", "Infinity", "e+300", "9" * 30))
    assert all(word not in requests.get(f"{turn}/events", timeout=60).text for word in ("NaN", "Infinity"))


NAMED = b'"here"'
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
        stream(tool_call_stream(client, [("here", ARGUMENTS)]).replace(NAMED, b"12345")),
        COMPLETE_STREAMS[client],
        COMPLETE_STREAMS[client],
    )
    assert said(host, client, "number-id") == "Hello."
    assert said(host, client, "number-id", "And now?") == "Hello."
    sent = json.dumps(last_request(client, model))
    assert sent.count('"12345"') == 2
    assert ": 12345" not in sent
    verified = requests.get(f"{host.url}/api/agents/{client}/sessions/number-id/verify", timeout=60)
    assert not any("a text or null is expected" in one["problem"] for one in verified.json()["problems"])


@pytest.mark.parametrize("client", CLIENTS[:2])
def test_a_number_for_a_name_becomes_a_text(host: AgentHost, model: HostileModel, client: str):
    """The model is told that there is no such tool."""
    asked = tool_call_stream(client, [("call_1", ARGUMENTS)]).replace(b'"name": "say"', b'"name": 7')
    model.play(stream(asked), COMPLETE_STREAMS[client], COMPLETE_STREAMS[client])
    assert said(host, client, "number-name") == "Hello."
    assert said(host, client, "number-name", "And now?") == "Hello."
    sent = json.dumps(last_request(client, model))
    assert '"name": "7"' in sent
    assert '"name": 7' not in sent


@pytest.mark.parametrize("client", CLIENTS[:3])
def test_an_id_that_is_neither_text_nor_number_fails_the_turn(host: AgentHost, model: HostileModel, client: str):
    """The problem names it and shows it."""
    model.play(fallback=stream(tool_call_stream(client, [("here", ARGUMENTS)]).replace(NAMED, b'["x"]')))
    assert "id' is no text: ['x']" in problem(host, client, "list-id")


def test_a_number_for_a_finish_reason_becomes_a_text(host: AgentHost, model: HostileModel):
    """It is shown as the service's word."""
    spoken = COMPLETE_STREAMS["Completions"].partition(b"\r\n\r\n")[2]
    model.play(stream(spoken.replace(b'"finish_reason": "stop"', b'"finish_reason": 5')))
    reply = host.run("Completions", {"message": "Good morning", "session_id": "reason"})
    url = f"{host.url}/api/agents/Completions/sessions/reason/turns/{reply.headers['x-ms-turn-id']}/steps"
    assert [step["finish_reason"] for step in requests.get(url, timeout=60).json()["steps"] if "usage" in step] == ["5"]


UNREADABLE = [
    ("Responses", b'"created_at": 1', b'"created_at": 1e300'),
    ("Responses", b'data: {"type": "response.created"', b'data: [1]\n\ndata: {"type": "response.created"'),
    ("Completions", b'"created": 1', b'"created": 1e300'),
    ("Completions", b'data: {"id"', b'data: [1]\n\ndata: {"id"'),
    ("Claude", b'"type": "content_block_delta", "index": 0', b'"type": "content_block_delta", "index": []'),
    ("Gemini", b'"candidates"', b'"usageMetadata": {"promptTokenCount": [1]}, "candidates"'),
]


@pytest.mark.parametrize(("client", "known", "instead"), UNREADABLE)
def test_an_answer_that_cannot_be_read_is_a_sentence(
    host: AgentHost, model: HostileModel, client: str, known: bytes, instead: bytes
):
    """With the client's name, and the error's text behind it."""
    spoken = COMPLETE_STREAMS[client].partition(b"\r\n\r\n")[2]
    assert known in spoken
    model.play(fallback=stream(spoken.replace(known, instead)))
    told = problem(host, client, f"unreadable-{len(instead)}")
    assert told.startswith("the model's service sent an answer that cannot be read: "), told
    assert "Client: " in told


SCHEMA = {"type": "object", "properties": {"a": {"type": "number", "maximum": 10}}}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("response_format", [SCHEMA, {"type": "json_object"}], ids=["schema", "any"])
def test_a_structured_answer_with_a_number_that_json_lacks_is_no_json(
    host: AgentHost, model: HostileModel, number: str, response_format: dict
):
    """The turn fails as with any other answer that is not JSON, in JSON on every route, and the session goes on."""
    model.play(fallback=stream(events(chat_chunk(f'{{"a": {number}}}'), chat_chunk(finish="stop"))))
    session = f"structured-{len(response_format)}-{number}"
    asked = {"message": "Count", "session_id": session, "response_format": response_format}
    reply = host.run("Completions", asked)
    assert reply.status_code == 502
    assert "is not JSON, as response_format asks" in reply.json()["detail"]
    url = f"{host.url}/api/agents/Completions/sessions/{session}"
    turn = f"{url}/turns/{reply.headers['x-ms-turn-id']}"
    for shown in (url, turn, f"{turn}/steps", f"{turn}/calls", f"{url}/export"):
        json.loads(requests.get(shown, timeout=60).text, parse_constant=no_number)
    for line in requests.get(f"{turn}/events", timeout=60).text.splitlines():
        if line.startswith("data: "):
            json.loads(line.removeprefix("data: "), parse_constant=no_number)
    model.play(fallback=COMPLETE_STREAMS["Completions"])
    assert said(host, "Completions", session, "And now?") == "Hello."


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_body_with_a_number_that_json_lacks_is_refused(host: AgentHost, model: HostileModel, number: str):
    """The answer is a 400 with a sentence, for a field that the turn would take and for others; no model is asked."""
    headers = {"content-type": "application/json"}
    for field in (f'"options": {{"temperature": {number}}}', f'"more": [{number}]'):
        body = f'{{"message": "x", {field}}}'
        refused = requests.post(f"{host.url}/api/agents/Completions/run", data=body, headers=headers, timeout=60)
        assert (refused.status_code, "number" in refused.json()["detail"]) == (400, True), refused.text
    assert model.received == []
