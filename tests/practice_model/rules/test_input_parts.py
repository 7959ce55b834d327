"""Images, files and audio that the live API accepts or rejects."""

import pytest

from practice_model.rules.requests import Rules, check_request
from practice_model.store import Store

PNG = "data:image/png;base64,YWJj"
PDF = "data:application/pdf;base64,YWJj"


def get_error_message(part, *, kind="message"):
    """Return the error message for a part in a message or in a tool result; None if it is accepted."""
    item = {"role": "user", "content": [part]}
    previous_items = []
    if kind == "output":
        previous_items = [{"type": "function_call", "call_id": "call_1", "name": "a", "arguments": "{}"}]
        item = {"type": "function_call_output", "call_id": "call_1", "output": [part]}
    violation = check_request({"model": "practice", "input": [*previous_items, item]}, Store(), Rules(), now=0.0)
    return violation and violation.message


@pytest.mark.parametrize("kind", ["message", "output"])
@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_text", "text": PNG},
        {"type": "input_image", "image_url": PNG, "detail": "low"},
        {"type": "input_image", "image_url": "https://example.org/a.png"},
        {"type": "input_image", "file_id": "file-1"},
        {"type": "input_file", "file_data": PDF, "filename": "a.pdf"},
        {"type": "input_file", "file_data": "data:text/csv;base64,YWJj", "filename": "a.csv"},
        {"type": "input_file", "file_url": "https://example.org/a.pdf"},
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "wav"}},
    ],
)
def test_accepted_parts(part, kind):
    """Each type of part, from each source."""
    assert get_error_message(part, kind=kind) is None


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"type": "image_url"}, "Invalid value: 'image_url'. Supported values are"),
        ({"type": "input_text"}, "Missing required parameter: 'input[0].content[0].text'."),
        ({"type": "input_image"}, "Missing required parameter: 'input[0].content[0].image_url'."),
        ({"type": "input_image", "image_url": PDF}, "but got unsupported MIME type 'application/pdf'."),
        ({"type": "input_image", "image_url": "data:image/png;base64,@"}, "an invalid base64-encoded value."),
        ({"type": "input_image", "image_url": "a.png"}, "Expected a valid URL"),
        ({"type": "input_image", "image_url": PNG, "detail": "most"}, "Invalid value: 'most'."),
        ({"type": "input_image", "image_url": PNG, "name": "a"}, "Unknown parameter: 'input[0].content[0].name'."),
        ({"type": "input_file"}, "Missing required parameter: 'input[0].content[0].file_id'."),
        ({"type": "input_file", "file_data": PDF}, "Missing required parameter: 'input[0].content[0].filename'."),
        ({"type": "input_file", "file_data": "YWJj", "filename": "a"}, "Invalid 'input[0].content[0].file_data'."),
        ({"type": "input_file", "file_data": "https://a/b.pdf", "filename": "a"}, "Invalid"),
        ({"type": "input_file", "file_id": "a", "file_data": PDF, "filename": "a"}, "Mutually exclusive"),
        ({"type": "input_audio", "input_audio": {"data": "YWJj"}}, "input_audio.format"),
        ({"type": "input_audio", "input_audio": {"data": "YWJj", "format": "ogg"}}, "Invalid value: 'ogg'."),
        ({"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}}, "expected base64-encoded audio"),
    ],
)
def test_rejected_parts(part, message):
    """Each mistake, with the API's error message."""
    assert message in (get_error_message(part) or "the request was accepted")
