"""The practice model as the Gemini API: its rules in its own words, its errors, streams and recordings."""

import json

import pytest

from practice_model.dialects.gemini.signatures import sign
from practice_model.rules.gemini_contents import check_request
from practice_model.server import PracticeModel
from tests.kit import RECORDINGS
from tests.practice_model.conftest import Served

KEY = {"x-goog-api-key": "practice"}
ASK = {"role": "user", "parts": [{"text": "go"}]}
CALL = {"functionCall": {"name": "f", "args": {}, "id": "1"}, "thoughtSignature": sign("rs_1", "x")}
ANSWER = {"role": "user", "parts": [{"functionResponse": {"name": "f", "id": "1", "response": {"result": "x"}}}]}
MANY = "Please ensure that the number of function response parts is equal to the number of function call parts of the"


def said(*parts):
    """A turn of the model."""
    return {"role": "model", "parts": list(parts)}


def refusal(*contents, name="gemini-3-flash"):
    """What the API says against a request."""
    found = check_request(name, {"contents": list(contents)}, lambda value: value == CALL["thoughtSignature"], [])
    return None if found is None else found.message


@pytest.mark.parametrize(
    ("contents", "refused"),
    [
        ([], "contents is not specified"),
        ([{"role": "assistant", "parts": [{"text": "x"}]}], "valid role: user, model"),
        ([{"role": "user", "parts": []}], "contents.parts must not be empty"),
        ([{"role": "user", "parts": [{"thoughtSignature": "c2lnbmVk"}]}], "required oneof field 'data'"),
        ([{"role": "user", "parts": [{"text": "x", "hologram": 1}]}], 'Unknown name "hologram" at'),
        ([{"role": "user", "parts": [{"inlineData": {"data": "%"}}]}], "Base64 decoding failed"),
        ([said(CALL), ANSWER], "function call turn comes immediately after a user turn"),
        ([ASK, ANSWER], "function response turn comes immediately after a function call turn"),
        ([ASK, said(CALL, CALL), ANSWER], MANY),
        ([ASK, said(CALL), ASK], MANY),
        ([ASK, said(CALL)], MANY),
        ([ASK, said({"functionCall": CALL["functionCall"]}), ANSWER], "missing a thought_signature in functionCall"),
        ([ASK, said({**CALL, "thoughtSignature": "c2lnbmVk"}), ANSWER], "Corrupted thought signature"),
    ],
)
def test_what_the_api_refuses(contents, refused):
    """Each rule is enforced, in the words of the live service."""
    assert refused in (refusal(*contents) or "accepted")


def test_what_the_api_takes():
    """Calls with their answers; signatures are required of Gemini 3 and in the current turn alone."""
    unsigned = said({"functionCall": CALL["functionCall"]})
    second = {"functionCall": {**CALL["functionCall"], "id": "2"}}
    assert refusal(ASK, said(CALL), ANSWER) is None
    assert refusal(ASK, unsigned, ANSWER, name="gemini-2.5-flash") is None
    assert refusal(ASK, unsigned, ANSWER, said({"text": "x"}), ASK) is None
    assert refusal(ASK, said(CALL, second), {"role": "user", "parts": ANSWER["parts"] * 2}) is None


def ask(served: Served, *contents, name="gemini-3-flash", stream=True, **body):
    """Send a request."""
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    url = f"/gemini/v1beta/models/{name}:{method}"
    return served.http.post(url, json={"contents": list(contents) or [ASK], **body}, headers=KEY)


def chunks_of(answer):
    """Read the chunks of a stream."""
    assert answer.status_code == 200, answer.text
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.split("\r\n\r\n") if line]


def parts_of(chunks):
    """List the parts of chunks."""
    return [part for one in chunks for candidate in one["candidates"] for part in candidate["content"]["parts"]]


def test_errors_have_the_form_of_googles_apis(model: Served):
    """A status, its name, and the wait as a detail; without a key nothing is answered."""
    model.plan({"error": {"status": 429, "message": "Quota", "retry_after": 3}})
    answer = ask(model)
    assert (answer.status_code, answer.json()["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert answer.json()["error"]["details"][0]["retryDelay"] == "3s"
    url = "/gemini/v1beta/models/m:generateContent"
    refused = model.http.post(url, json={"contents": [ASK]}, headers={"authorization": ""})
    assert (refused.status_code, refused.json()["error"]["status"]) == (403, "PERMISSION_DENIED")


def test_a_plan_is_told_in_the_parts_of_the_api(model: Served):
    """Code with its output, calls with signatures, texts in pieces; the last chunk has the reason of the end."""
    model.plan(
        {"items": [{"code": "1", "logs": "1"}, {"text": "abcdef"}, {"calls": [{"name": "f"}]}], "chunk_characters": 4}
    )
    chunks = chunks_of(ask(model))
    kinds = [next(iter(part)) for part in parts_of(chunks)]
    assert kinds == ["executableCode", "codeExecutionResult", "text", "text", "text", "functionCall", "text"]
    assert [one["candidates"][0].get("finishReason") for one in chunks] == [None] * 6 + ["STOP"]
    assert len({one["responseId"] for one in chunks}) == 1
    signed = ["thoughtSignature" in part for part in parts_of(chunks)]
    assert signed == [True, False, False, False, True, True, False]
    model.plan({"calls": [{"name": "f"}]})
    (part,) = parts_of([ask(model, name="gemini-2.5-flash", stream=False).json()])
    assert part == {"functionCall": {"name": "f", "args": {}}}


def test_streams_fail_as_a_plan_says(model: Served):
    """An error in the middle, a broken connection, a filter, a blocked prompt, arguments that are no JSON."""
    model.plan({"text": "abc", "fail": {"code": "UNAVAILABLE", "message": "Overloaded."}})
    assert chunks_of(ask(model))[-1] == {"error": {"code": 503, "message": "Overloaded.", "status": "UNAVAILABLE"}}
    model.plan({"text": "abc", "incomplete": "recitation"})
    assert chunks_of(ask(model))[-1]["candidates"][0]["finishReason"] == "RECITATION"
    model.plan({"text": "abc", "incomplete": "blocked"})
    assert chunks_of(ask(model))[0]["promptFeedback"] == {"blockReason": "PROHIBITED_CONTENT"}
    model.plan({"calls": [{"name": "f", "arguments": "{"}]})
    assert chunks_of(ask(model))[-1]["candidates"][0]["finishReason"] == "MALFORMED_FUNCTION_CALL"


def test_arguments_come_in_pieces_when_they_are_asked_for(model: Served):
    """The call begins with its name; a piece that is empty ends it."""
    model.plan({"calls": [{"name": "f", "arguments": {"a": "xyz", "n": 1}}], "chunk_characters": 2})
    config = {"functionCallingConfig": {"streamFunctionCallArguments": True}}
    parts = parts_of(chunks_of(ask(model, toolConfig=config)))
    assert parts[0]["functionCall"]["willContinue"]
    assert len([part for part in parts if "partialArgs" in part.get("functionCall", {})]) == 4
    assert parts[-2] == {"functionCall": {}}


@pytest.mark.recordings
def test_recorded_requests_are_accepted_and_answered():
    """Every recorded request passes the rules; one that was answered in a stream gets that stream."""
    if not (RECORDINGS / "gemini").is_dir():
        pytest.skip("no recordings")
    service = PracticeModel(recordings_folder=RECORDINGS)
    assert service.app is not None
    for path in (RECORDINGS / "gemini").rglob("*.request.json"):
        body = json.loads(path.read_text())
        assert check_request("gemini-3", body, lambda _: True, []) is None or "25" in str(path), path
