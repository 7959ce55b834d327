"""Values of the Messages API's blocks."""

from typing import Any

from tests.durable_agent_host.provider_table.probes import MARK, Probe, probe, probe_arguments

_URL = "https://a.example"
_CITATION = {"type": "web_search_result_location", "url": _URL, "title": "A", "encrypted_index": "e", "cited_text": "c"}
_THINKING = {"type": "thinking", "thinking": "x", "signature": "sealed"}
_FOUND = {"type": "web_search_result", "url": _URL, "title": "A", "encrypted_content": "e", "page_age": None}
_CODE = "code_execution"
_BASH = "bash_code_execution"
_EDITOR = "text_editor_code_execution"


def _call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"type": "server_tool_use", "id": "srvtoolu_1", "name": name, "input": arguments}


def _result(name: str, content: Any) -> dict[str, Any]:
    return {"type": f"{name}_tool_result", "tool_use_id": "srvtoolu_1", "content": content}


def _ran(name: str, **more: Any) -> dict[str, Any]:
    return _result(
        name, {"type": f"{name}_result", "stdout": "x", "stderr": "", "return_code": 0, "content": [], **more}
    )


def _file(name: str) -> list[dict[str, Any]]:
    return [{"type": f"{name}_output", "file_id": f"file_{MARK}"}]


_VIEW_RESULT = {
    "type": f"{_EDITOR}_view_result",
    "file_type": "text",
    "num_lines": 1,
    "start_line": 1,
    "total_lines": 1,
}
_EDIT = _call(_EDITOR, command="view", path="notes.txt")
_MCP = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "find", "server_name": "docs", "input": {}}
_GAVE = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False}
_IN_CONTAINER = {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "outputs": []}

PROBES: tuple[Probe, ...] = (
    probe("text", "text", {"type": "text", "text": MARK}, is_answer=True),
    probe(
        "text",
        "citations",
        {"type": "text", "text": "x", "citations": [{**_CITATION, "cited_text": MARK}]},
        is_answer=True,
    ),
    probe("thinking", "thinking", {**_THINKING, "thinking": MARK}),
    probe("thinking", "signature", {**_THINKING, "signature": f"{MARK}aa"}),
    probe("redacted_thinking", "data", {"type": "redacted_thinking", "data": f"{MARK}aa"}),
    probe(_CODE, "code", _call(_CODE, code=MARK), _ran(_CODE)),
    probe(_CODE, "stdout", _call(_CODE, code="1"), _ran(_CODE, stdout=MARK)),
    probe(_CODE, "file_id", _call(_CODE, code="1"), _ran(_CODE, content=_file(_CODE))),
    probe(_BASH, "command", _call(_BASH, command=MARK), _ran(_BASH)),
    probe(_BASH, "stdout", _call(_BASH, command="ls"), _ran(_BASH, stdout=MARK)),
    probe(_BASH, "file_id", _call(_BASH, command="ls"), _ran(_BASH, content=_file(_BASH))),
    probe(
        _EDITOR, "path", _call(_EDITOR, command="view", path=MARK), _result(_EDITOR, {**_VIEW_RESULT, "content": "x"})
    ),
    probe(_EDITOR, "content", _EDIT, _result(_EDITOR, {**_VIEW_RESULT, "content": MARK})),
    probe("web_search", "query", _call("web_search", query=MARK), _result("web_search", [_FOUND])),
    probe("web_search", "title", _call("web_search", query="x"), _result("web_search", [{**_FOUND, "title": MARK}])),
    probe("mcp", "input", {**_MCP, "input": {"q": MARK}}, {**_GAVE, "content": [{"type": "text", "text": "x"}]}),
    probe("mcp", "content", _MCP, {**_GAVE, "content": [{"type": "text", "text": MARK}]}),
    probe("container", "id", {**_IN_CONTAINER, "container_id": f"container_{MARK}"}),
    probe("compaction", "encrypted_content", {"type": "compaction", "encrypted_content": f"{MARK}aa"}),
    probe_arguments("tool_use", "input"),
)
