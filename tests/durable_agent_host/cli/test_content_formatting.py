"""What `sessions show` prints of the contents of a conversation."""

import pytest
from agent_framework import Content

from durable_agent_host.cli.content_formatting import format_content
from durable_agent_host.codec.content import encode_content
from durable_agent_host.model.provider_item import STAMP

IMAGE = Content.from_uri("data:image/png;base64,AA==", media_type="image/png")
FILE = Content.from_hosted_file("file_1", name="b.csv")
PYTHON = {"language": "python"}
STAMPED = {STAMP: {"provider": "somebody", "type": "own_word", "id": "own_1", "own_field": "own"}}
CONTENTS = [
    (Content.from_text("Hello", additional_properties=STAMPED), "Hello"),
    (Content.from_text("", additional_properties=STAMPED), ""),
    (Content.from_text_reasoning(text="Think", protected_data="sealed"), "reasoning: Think"),
    (Content.from_function_call("c", "add", arguments='{"a": 1}'), 'calls add {"a": 1}'),
    (Content.from_function_result("c", result="2"), "result: 2"),
    (
        Content.from_code_interpreter_tool_call(
            call_id="c",
            inputs=[Content.from_text("print(1)", additional_properties=PYTHON)],
            additional_properties=STAMPED,
        ),
        "runs python: print(1)",
    ),
    (
        Content.from_code_interpreter_tool_result(
            call_id="c", outputs=[Content.from_text("1"), IMAGE, FILE, Content.from_error(message="no")]
        ),
        "printed: 1 [image/png] [file b.csv] error: no",
    ),
    (Content.from_shell_tool_call(call_id="c", commands=["ls", "pwd"]), "runs commands: ls; pwd"),
    (
        Content.from_shell_tool_result(
            call_id="c", outputs=[Content.from_shell_command_output(stdout="a", stderr="b", exit_code=2)]
        ),
        "printed: a b exit code 2",
    ),
    (
        Content.from_search_tool_call("c", tool_name="web_search", arguments={"query": "tea"}),
        'searches (web_search): {"query": "tea"}',
    ),
    (
        Content.from_search_tool_result("c", tool_name="web_search", result=[{"title": "Tea"}]),
        'found: {"title": "Tea"}',
    ),
    (
        Content.from_mcp_server_tool_call("c", "find", server_name="docs", arguments='{"q": 1}'),
        'calls docs/find {"q": 1}',
    ),
    (Content.from_mcp_server_tool_result("c", output=[Content.from_text("page")]), "result: page"),
    (
        Content.from_mcp_server_tool_result("c", additional_properties={"error": {"code": 7}}),
        'failed: {"code": 7}',
    ),
    (FILE, "[file b.csv]"),
    (IMAGE, "[image/png]"),
    (Content.from_hosted_vector_store("vs_1"), "[vector store vs_1]"),
]


@pytest.mark.parametrize(("content", "line"), CONTENTS, ids=lambda value: str(value)[:30])
def test_a_content_is_printed_in_the_terms_of_all_providers(content, line):
    """Code, outputs, files, searches and calls are shown, and nothing that only one provider calls so."""
    assert format_content(encode_content(content)) == line


def test_unknown_contents_are_printed_unchanged():
    """A type or a shape that nobody knows is shown with its fields."""
    assert format_content({"$type": "new", "value": 1}) == 'new {"value": 1}'
    strange = {"$type": "codeInterpreterToolCall", "content": {"inputs": "print(1)"}}
    assert format_content(strange) == 'codeInterpreterToolCall {"content": {"inputs": "print(1)"}}'
