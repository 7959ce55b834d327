"""Blocks that the services of every provider write, with a mark in each value that has to go somewhere."""

from collections.abc import Mapping, Sequence
from typing import Any

Block = Sequence[Mapping[str, Any]]
"""Items of the practice model's plan; a call of the app's tool is answered in a second model call."""


def _items(*items: Mapping[str, Any]) -> Block:
    return [{"item": item} for item in items]


def _tool_call(number: int) -> Block:
    """A call of the app's tool, with blanks in its arguments as no program writes them."""
    return [{"calls": [{"name": "note", "arguments": f'{{"text":  "canary{number}"}}'}]}]


def _openai(kind: str, item_id: str, **fields: Any) -> Block:
    return _items({"type": kind, "id": item_id, "status": "completed", **fields})


_TEXT = {"type": "output_text", "text": "canary103 has two sources."}
_RANGE = {"title": "A", "start_index": 0, "end_index": 9}
_ANNOTATIONS = [
    {"type": "url_citation", "url": "https://canary104.example", **_RANGE},
    {"type": "container_file_citation", "container_id": "cntr_1", "file_id": "cfile_canary105", "filename": "a.csv"}
    | _RANGE,
]
_FOUND_FILE: Mapping[str, Any] = {
    "file_id": "file-1",
    "filename": "a",
    "score": 1.0,
    "attributes": {},
    "text": "canary113",
}
_MCP = {"name": "find", "server_label": "docs", "arguments": '{"q":"canary114"}', "error": None}

_OPENAI: Sequence[Block] = (
    _openai(
        "message",
        "msg_canary101",
        role="assistant",
        phase="canary102",
        content=[{**_TEXT, "annotations": _ANNOTATIONS}],
    ),
    _openai(
        "code_interpreter_call",
        "ci_1",
        container_id="cntr_canary106",
        code="canary107",
        outputs=[{"type": "logs", "logs": "stored108"}],
    ),
    _items(
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "canary109"}],
            "encrypted_content": "canary110",
        }
    ),
    _openai("web_search_call", "ws_1", action={"type": "search", "query": "canary111"}),
    _openai("file_search_call", "fs_1", queries=["canary112"], results=[_FOUND_FILE]),
    _items({"type": "mcp_call", "id": "mcp_1", **_MCP, "output": "canary115"}),
    _items({"type": "mcp_call", "id": "mcp_2", **_MCP, "output": None, "error": "canary116"}),
    _items(
        {
            "type": "mcp_list_tools",
            "id": "mcpl_1",
            "server_label": "docs",
            "tools": [{"name": "canary117", "input_schema": {}}],
        }
    ),
    _openai("image_generation_call", "ig_1", result="canary118aaa"),
    _openai(
        "tool_search_output",
        "tso_1",
        call_id="call_1",
        execution="server",
        tools=[{"type": "function", "name": "canary119"}],
    ),
    _items({"type": "program", "id": "cm_1", "call_id": "call_1", "fingerprint": "f", "code": "canary120"}),
    _items({"type": "compaction", "id": "cmp_1", "encrypted_content": "canary121"}),
    _tool_call(122),
)


def _ran(name: str, arguments: Mapping[str, Any], content: Any) -> Block:
    """A call of a tool of Anthropic's service, and its result."""
    call_id = f"srvtoolu_{name}"
    return _items(
        {"type": "server_tool_use", "id": call_id, "name": name, "input": arguments},
        {"type": f"{name}_tool_result", "tool_use_id": call_id, "content": content},
    )


def _code_result(name: str, stdout: str, file_id: str) -> Mapping[str, Any]:
    files = [{"type": f"{name}_output", "file_id": file_id}]
    return {"type": f"{name}_result", "stdout": stdout, "stderr": "", "return_code": 0, "content": files}


_VIEW = {
    "type": "text_editor_code_execution_view_result",
    "file_type": "text",
    "num_lines": 1,
    "start_line": 1,
    "total_lines": 1,
}
_PAGE = {"url": "https://a.example", "title": "A"}
_CITED = {"type": "web_search_result_location", **_PAGE, "encrypted_index": "e", "cited_text": "canary202"}
_FOUND_PAGE = {"type": "web_search_result", **_PAGE, "encrypted_content": "e", "page_age": None, "title": "canary213"}
_ANTHROPIC: Sequence[Block] = (
    _items({"type": "text", "text": "canary201", "citations": [_CITED]}),
    _items({"type": "thinking", "thinking": "canary203", "signature": "canary204aaa"}),
    _items({"type": "redacted_thinking", "data": "canary205aaa"}),
    _ran("code_execution", {"code": "canary206"}, _code_result("code_execution", "canary207", "file_canary208")),
    _ran(
        "bash_code_execution",
        {"command": "canary209"},
        _code_result("bash_code_execution", "canary210", "file_canary211"),
    ),
    _ran(
        "text_editor_code_execution",
        {"command": "view", "path": "canary214"},
        {**_VIEW, "content": "canary215"},
    ),
    _ran("web_search", {"query": "canary212"}, [_FOUND_PAGE]),
    _items(
        {
            "type": "mcp_tool_use",
            "id": "mcptoolu_1",
            "name": "find",
            "server_name": "docs",
            "input": {"q": "canary216"},
        },
        {
            "type": "mcp_tool_result",
            "tool_use_id": "mcptoolu_1",
            "is_error": False,
            "content": [{"type": "text", "text": "canary217"}],
        },
    ),
    _openai("code_interpreter_call", "ci_1", code="1", outputs=[], container_id="container_canary218"),
    _items({"type": "compaction", "encrypted_content": "canary219aaa"}),
    _tool_call(220),
)


def _parts(*parts: Mapping[str, Any]) -> Block:
    return _items(*({"type": "part", "part": part} for part in parts))


_SEARCH = {"toolType": "GOOGLE_SEARCH_WEB", "id": "t1"}
_GEMINI: Sequence[Block] = (
    _parts({"text": "canary301", "thoughtSignature": "canary302aaa"}),
    _parts({"text": "canary303", "thought": True}),
    _parts(
        {
            "executableCode": {"language": "PYTHON", "code": "canary304", "id": "c1"},
            "thoughtSignature": "canary305aaa",
        },
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "canary306", "id": "c1"}},
    ),
    _parts({"inlineData": {"mimeType": "image/png", "data": "canary307aaa"}}),
    _parts(
        {"toolCall": {**_SEARCH, "args": {"queries": ["canary308"]}}},
        {"toolResponse": {**_SEARCH, "response": {"a": "canary309"}}},
    ),
    _tool_call(310),
)


def _message(**fields: Any) -> Block:
    return _items({"type": "chat.completion.message", "content": None, **fields})


_DETAILS = [
    {"type": "reasoning.text", "index": 0, "text": "canary404", "signature": "canary405"},
    {"type": "reasoning.encrypted", "index": 1, "data": "canary406"},
]
_NOTE = {"id": "call_1", "type": "function", "function": {"name": "note", "arguments": '{"text": "canary412"}'}}
_CHAT: Sequence[Block] = (
    _message(content="canary401", reasoning_content="canary402", mood="canary403"),
    _message(
        content="Done.",
        reasoning="canary407",
        reasoning_details=_DETAILS,
        annotations=[{"type": "url_citation", "url_citation": {"url": "canary408"}}],
        images=[{"type": "image_url", "image_url": {"url": "https://x/canary409.png"}}],
    ),
    _message(refusal="canary410"),
    _message(audio={"id": "canary411", "transcript": "stored413"}),
    _message(tool_calls=[{**_NOTE, "extra_content": {"google": {"thought_signature": "canary414"}}}]),
)


def _step_call(kind: str, number: int, payload: str | None = None, **fields: Any) -> Block:
    """A call of a tool in a step of the Azure AI Agents service."""
    return _items({"type": kind, "id": f"call_{number}", payload or kind: fields})


def _cited(kind: str, **source: str) -> Mapping[str, Any]:
    return {"type": kind, "text": "[1]", "start_index": 0, "end_index": 3, kind: source}


_SOURCES = (
    _cited("url_citation", url="https://stored502.example", title="A"),
    _cited("file_citation", file_id="file-stored503"),
    _cited("file_path", file_id="file-stored504"),
)
_CONTENT = [{"type": "text", "text": "canary507"}]
_AGENTS: Sequence[Block] = (
    _items(
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "[1] says canary501.", "annotations": _SOURCES}],
        }
    ),
    [{"code": "canary505", "logs": "canary506"}],
    _step_call("file_search", 1, results=[{"file_id": "f", "file_name": "a", "score": 0.5, "content": _CONTENT}]),
    _step_call("bing_grounding", 2, requesturl="https://x?q=canary508"),
    _step_call("azure_ai_search", 3, input="x", output="canary509"),
    _step_call("openapi", 4, "function", name="find", arguments="canary510", output="x"),
    _step_call("connected_agent", 5, name="x", output="canary511"),
    _step_call("deep_research", 6, input="x", output="canary512"),
    _items(
        {
            "type": "mcp",
            "id": "call_7",
            "name": "find",
            "server_label": "docs",
            "arguments": '{"q":"canary513"}',
            "output": "canary514",
        }
    ),
    _step_call("brooding", 8, mood="canary515"),
    _items({"type": "step", "step_details": {"type": "planning", "planning": {"mood": "stored516"}}}),
    _tool_call(517),
)

BLOCKS: Mapping[str, Sequence[Block]] = {
    "openai": _OPENAI,
    "anthropic": _ANTHROPIC,
    "gemini": _GEMINI,
    "chat": _CHAT,
    "azure-ai-agents": _AGENTS,
}
"""Name of a client → blocks of its service.

A value ``canary…`` is stored and sent back; a value ``stored…``, which the service does not take, is stored.
"""
