"""Values of the steps and messages of the Azure AI Agents service."""

from typing import Any

from tests.durable_agent_host.provider_table.probes import MARK, Probe, probe, probe_arguments


def _call(kind: str, payload: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "id": "call_1", payload: fields}


def _cites(kind: str, **source: str) -> dict[str, Any]:
    annotation = {"type": kind, "text": "[1]", "start_index": 0, "end_index": 3, kind: source}
    part = {"type": "output_text", "text": "[1] says so.", "annotations": [annotation]}
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}


def _code(code: str, logs: str) -> tuple[dict[str, Any], ...]:
    return {"code": code, "logs": logs}, {"text": "Done."}


_FILE = {"file_id": "file-1", "file_name": "a.txt", "score": 0.5}
_MCP = {"type": "mcp", "id": "call_1", "name": "find", "server_label": "docs", "arguments": "{}", "output": "x"}
_NEW = {"type": "step", "step_details": {"type": "planning", "planning": {"mood": MARK}}}


def _found(text: str) -> list[dict[str, Any]]:
    return [{**_FILE, "content": [{"type": "text", "text": text}]}]


PROBES: tuple[Probe, ...] = (
    Probe("message", "text", (({"text": MARK},),)),
    probe("url_citation", "url", _cites("url_citation", url=f"https://{MARK}.example", title="A"), is_answer=True),
    probe("file_citation", "file_id", _cites("file_citation", file_id=f"file-{MARK}"), is_answer=True),
    probe("file_path", "file_id", _cites("file_path", file_id=f"file-{MARK}"), is_answer=True),
    Probe("code_interpreter", "input", (_code(MARK, "x"),)),
    Probe("code_interpreter", "logs", (_code("1", MARK),)),
    probe("file_search", "results", _call("file_search", "file_search", results=_found(MARK))),
    probe("bing_grounding", "requesturl", _call("bing_grounding", "bing_grounding", requesturl=f"https://x?q={MARK}")),
    probe("azure_ai_search", "output", _call("azure_ai_search", "azure_ai_search", input="x", output=MARK)),
    probe("openapi", "arguments", _call("openapi", "function", name="find", arguments=MARK, output="x")),
    probe("connected_agent", "output", _call("connected_agent", "connected_agent", name="x", output=MARK)),
    probe("deep_research", "output", _call("deep_research", "deep_research", input="x", output=MARK)),
    probe("mcp", "arguments", {**_MCP, "arguments": f'{{"q":"{MARK}"}}'}),
    probe("mcp", "output", {**_MCP, "output": MARK}),
    probe("a tool that nobody knows", "mood", _call("brooding", "brooding", mood=MARK)),
    probe("a step that nobody knows", "mood", _NEW),
    probe_arguments("function", "arguments"),
)
