"""Values of the Responses API's items."""

from typing import Any

from tests.durable_agent_host.provider_table.probes import MARK, Probe, probe, probe_arguments


def _item(kind: str, item_id: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "id": item_id, **fields}


_DONE = {"status": "completed"}
_CODE = _item("code_interpreter_call", "ci_1", container_id="cntr_1", code="1", outputs=[], **_DONE)
_TEXT = {"type": "output_text", "text": "Said.", "annotations": []}
_MESSAGE = _item("message", "msg_1", role="assistant", content=[_TEXT], **_DONE)
_REASONING = _item("reasoning", "rs_1", summary=[], encrypted_content="sealed")
_SEARCH = _item("web_search_call", "ws_1", action={"type": "search", "query": "x"}, **_DONE)
_FILES = _item("file_search_call", "fs_1", queries=["x"], results=[], **_DONE)
_MCP = _item("mcp_call", "mcp_1", name="find", server_label="docs", arguments="{}", output="x", error=None)
_LIST = _item("mcp_list_tools", "mcpl_1", server_label="docs")
_IMAGE = _item("image_generation_call", "ig_1", **_DONE)
_TOOLS = _item("tool_search_output", "tso_1", call_id="call_1", execution="server", **_DONE)
_PROGRAM = _item("program", "cm_1", call_id="call_1", fingerprint="f")
_URL = {"type": "url_citation", "title": "A", "start_index": 0, "end_index": 5}
_FILE = _URL | {"type": "container_file_citation", "container_id": "cntr_1", "filename": "a.csv"}
_RESULT = {"file_id": "file-1", "filename": "a", "score": 1.0, "attributes": {}}


def _cites(**annotation: Any) -> dict[str, Any]:
    return {**_MESSAGE, "content": [{**_TEXT, "annotations": [annotation]}]}


PROBES: tuple[Probe, ...] = (
    probe("message", "text", {**_MESSAGE, "content": [{**_TEXT, "text": MARK}]}, is_answer=True),
    probe("message", "id", {**_MESSAGE, "id": f"msg_{MARK}"}, is_answer=True),
    probe("message", "phase", {**_MESSAGE, "phase": MARK}, is_answer=True),
    probe("url_citation", "url", _cites(**_URL, url=f"https://{MARK}.example"), is_answer=True),
    probe("container_file_citation", "file_id", _cites(**_FILE, file_id=f"cfile_{MARK}"), is_answer=True),
    probe("code_interpreter_call", "code", {**_CODE, "code": MARK}),
    probe("code_interpreter_call", "logs", {**_CODE, "outputs": [{"type": "logs", "logs": MARK}]}),
    probe("code_interpreter_call", "container_id", {**_CODE, "container_id": f"cntr_{MARK}"}),
    probe("reasoning", "summary", {**_REASONING, "summary": [{"type": "summary_text", "text": MARK}]}),
    probe("reasoning", "encrypted_content", {**_REASONING, "encrypted_content": MARK}),
    probe("web_search_call", "query", {**_SEARCH, "action": {"type": "search", "query": MARK}}),
    probe("file_search_call", "queries", {**_FILES, "queries": [MARK]}),
    probe("file_search_call", "results", {**_FILES, "results": [{**_RESULT, "text": MARK}]}),
    probe("mcp_call", "arguments", {**_MCP, "arguments": f'{{"q":"{MARK}"}}'}),
    probe("mcp_call", "output", {**_MCP, "output": MARK}),
    probe("mcp_call", "error", {**_MCP, "output": None, "error": MARK}),
    probe("mcp_list_tools", "tools", {**_LIST, "tools": [{"name": MARK, "input_schema": {}}]}),
    probe("image_generation_call", "result", {**_IMAGE, "result": f"{MARK}aa"}),
    probe("tool_search_output", "tools", {**_TOOLS, "tools": [{"type": "function", "name": MARK}]}),
    probe("program", "code", {**_PROGRAM, "code": MARK}),
    probe("compaction", "encrypted_content", _item("compaction", "cmp_1", encrypted_content=MARK)),
    probe_arguments("function_call", "arguments"),
)
