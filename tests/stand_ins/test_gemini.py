"""The stand-in of the Gemini API: rules with their error messages, errors, streams and recordings."""

import json

import pytest

from tests.kit import RECORDINGS
from tests.practice_model.conftest import PracticeModelClient
from tests.stand_ins.gemini.rules import check_request
from tests.stand_ins.gemini.signatures import sign

KEY = {"x-goog-api-key": "practice"}
ASK = {"role": "user", "parts": [{"text": "go"}]}
CALL = {"functionCall": {"name": "f", "args": {}, "id": "1"}, "thoughtSignature": sign("rs_1", "x")}
RESPONSE = {"role": "user", "parts": [{"functionResponse": {"name": "f", "id": "1", "response": {"result": "x"}}}]}
UNEQUAL_COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the"
)


def model_content(*parts):
    """Return a turn of the model."""
    return {"role": "model", "parts": list(parts)}


def get_error_message(*contents, name="gemini-3-flash"):
    """Return the API's error message for a request; None if it is accepted."""
    violation = check_request(name, {"contents": list(contents)}, lambda value: value == CALL["thoughtSignature"], [])
    return None if violation is None else violation.message


@pytest.mark.parametrize(
    ("contents", "expected_text"),
    [
        ([], "contents is not specified"),
        ([{"role": "assistant", "parts": [{"text": "x"}]}], "valid role: user, model"),
        ([{"role": "user", "parts": []}], "contents.parts must not be empty"),
        ([{"role": "user", "parts": [{"thoughtSignature": "c2lnbmVk"}]}], "required oneof field 'data'"),
        ([{"role": "user", "parts": [{"text": "x", "hologram": 1}]}], 'Unknown name "hologram" at'),
        ([{"role": "user", "parts": [{"inlineData": {"data": "%"}}]}], "Base64 decoding failed"),
        ([model_content(CALL), RESPONSE], "function call turn comes immediately after a user turn"),
        ([ASK, RESPONSE], "function response turn comes immediately after a function call turn"),
        ([ASK, model_content(CALL, CALL), RESPONSE], UNEQUAL_COUNT),
        ([ASK, model_content(CALL), ASK], UNEQUAL_COUNT),
        ([ASK, model_content(CALL)], UNEQUAL_COUNT),
        (
            [ASK, model_content({"functionCall": CALL["functionCall"]}), RESPONSE],
            "missing a thought_signature in functionCall",
        ),
        ([ASK, model_content({**CALL, "thoughtSignature": "c2lnbmVk"}), RESPONSE], "Corrupted thought signature"),
    ],
)
def test_requests_that_the_api_rejects(contents, expected_text):
    """Each rule is enforced, with the error message of the live service."""
    assert expected_text in (get_error_message(*contents) or "accepted")


def test_requests_that_the_api_accepts():
    """Calls with their results; signatures are required only of Gemini 3 and in the current turn."""
    unsigned_content = model_content({"functionCall": CALL["functionCall"]})
    second = {"functionCall": {**CALL["functionCall"], "id": "2"}}
    assert get_error_message(ASK, model_content(CALL), RESPONSE) is None
    assert get_error_message(ASK, unsigned_content, RESPONSE, name="gemini-2.5-flash") is None
    assert get_error_message(ASK, unsigned_content, RESPONSE, model_content({"text": "x"}), ASK) is None
    assert get_error_message(ASK, model_content(CALL, second), {"role": "user", "parts": RESPONSE["parts"] * 2}) is None


def ask(client: PracticeModelClient, *contents, name="gemini-3-flash", stream=True, **body):
    """Send a request."""
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    url = f"/gemini/v1beta/models/{name}:{method}"
    return client.http.post(url, json={"contents": list(contents) or [ASK], **body}, headers=KEY)


def test_errors_have_the_format_of_googles_apis(player: PracticeModelClient):
    """Status, status name, and the retry delay as a detail; a request without a key is rejected."""
    player.plan({"error": {"status": 429, "message": "Quota", "retry_after": 3}})
    response = ask(player)
    assert (response.status_code, response.json()["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert response.json()["error"]["details"][0]["retryDelay"] == "3s"
    url = "/gemini/v1beta/models/m:generateContent"
    rejection = player.http.post(url, json={"contents": [ASK]}, headers={"authorization": ""})
    assert (rejection.status_code, rejection.json()["error"]["status"]) == (403, "PERMISSION_DENIED")


@pytest.mark.recordings
def test_recorded_requests_are_accepted():
    """Every recorded request passes the rules."""
    if not (RECORDINGS / "gemini").is_dir():
        pytest.skip("no recordings")
    for path in (RECORDINGS / "gemini").rglob("*.request.json"):
        body = json.loads(path.read_text())
        assert check_request("gemini-3", body, lambda _: True, []) is None or "25" in str(path), path
