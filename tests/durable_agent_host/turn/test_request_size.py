"""Estimated sizes of model requests."""

from base64 import b64encode

import pytest
from agent_framework import Content, FunctionTool, Message
from pydantic import BaseModel, Field

from durable_agent_host.turn.token_estimate import tokens_of_request


def size(*contents: Content) -> int:
    """Estimate a request of one message without options."""
    return tokens_of_request([Message("user", list(contents))], {})


def data(media_type: str, count: int, name: str | None = None) -> Content:
    """Make a content of so many bytes."""
    return Content("data", uri=f"data:{media_type};base64,{b64encode(bytes(count)).decode()}", name=name)


IMAGE = data("image/png", 3_000_000)
TEXT = Content.from_text("x" * 4000)
SIZES = [
    (TEXT, 1000),
    (Content.from_text("x"), 1),
    (Content.from_text_reasoning(text="x" * 4000), 1000),
    (data("text/plain", 3000), 750),
    (data("text/markdown;charset=utf-8", 3000), 750),
    (data("application/json", 3000), 750),
    (data("application/atom+xml", 3000), 750),
    (data("application/octet-stream", 3000, "rows.csv"), 750),
    (Content("data", uri="data:text/plain," + "x" * 3000, media_type="text/plain"), 750),
    (IMAGE, 1500),
    (data("application/pdf", 3_000_000), 31_500),
    (data("audio/wav", 30_000), 1800),
    (data("application/octet-stream", 300), 1503),
    (Content.from_uri("https://example.com/a.txt", media_type="text/plain"), 1500),
    (Content.from_hosted_file("file-1"), 1500),
    (Content.from_function_call("c", "f", arguments="x" * 4000), 1000),
    (Content.from_function_call("c", "f", arguments={"x": "x" * 3991}), 1000),
    (Content.from_function_result("c", result="x" * 4000), 1000),
    (Content.from_function_result("c", result=[TEXT, IMAGE, data("text/csv", 3000)]), 3250),
    (Content.from_code_interpreter_tool_result(call_id="c", outputs=[TEXT, IMAGE]), 2500),
    (Content.from_code_interpreter_tool_call(call_id="c", inputs=[TEXT]), 1000),
    (Content("mcp_server_tool_result", call_id="c", output=[TEXT]), 1000),
    (Content("mcp_server_tool_result", call_id="c", output="x" * 4000), 1000),
]


@pytest.mark.parametrize(("content", "expected"), SIZES)
def test_a_content_counts_by_what_it_is(content: Content, expected: int):
    """Texts by their length, data by its media type, what contains others by those."""
    assert size(content) == expected


def test_a_request_counts_all_of_its_contents():
    """Messages add up, and an empty request is nothing."""
    assert tokens_of_request([Message("user", [TEXT, TEXT]), Message("assistant", [TEXT])], {}) == 3000
    assert tokens_of_request([], {}) == 0


class Answer(BaseModel):
    """An answer."""

    city: str = Field(description="x" * 4000)


def find(where: str) -> str:
    """Find a place."""
    return where


TOOL = FunctionTool(name="find", description="x" * 4000, func=find)


@pytest.mark.parametrize(
    "options",
    [
        {"instructions": "x" * 4000},
        {"tools": [TOOL]},
        {"tools": TOOL},
        {"tools": [{"type": "web_search", "description": "x" * 4000}]},
        {"tools": [TOOL], "response_format": None},
        {"response_format": Answer},
        {"response_format": {"type": "object", "description": "x" * 4000}},
        {"metadata": {"note": "x" * 4000}},
    ],
)
def test_options_count_as_json(options):
    """Instructions, tools by their schemas, formats and all others."""
    assert 1000 < tokens_of_request([], options) < 1080
    assert tokens_of_request([Message("user", [TEXT])], options) == tokens_of_request([], options) + 1000


def test_what_is_no_json_does_not_disturb():
    """An object that only the client knows counts as nothing much."""
    assert tokens_of_request([], {"tools": [object()], "cancelled": object(), "names": {1, 2}}) < 20
