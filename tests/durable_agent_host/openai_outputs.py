"""Answers of the Responses API with what the recordings lack, and the events that a service sends for them."""

import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # one pixel
JPEG = "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQ=="
IMAGE = {"type": "image", "url": f"data:image/png;base64,{PNG}"}
PATH = {"type": "file_path", "file_id": "file-2", "index": 0}
FILE = {"type": "file_citation", "file_id": "file-1", "filename": "a.txt", "index": 3}
CONTAINER_FILE = {
    "type": "container_file_citation",
    "container_id": "cntr_1",
    "file_id": "cfile_1",
    "filename": "b.csv",
}
CONTAINER_FILE |= {"start_index": 0, "end_index": 4}
TOKEN = {"token": "Hi", "bytes": [72, 105], "logprob": -0.1, "top_logprobs": []}


def link(start: int, end: int, number: int = 1) -> Json:
    """A citation of a page."""
    page = {"url": f"https://example.com/{number}", "title": f"Page {number}"}
    return {"type": "url_citation", **page, "start_index": start, "end_index": end}


def text(value: str, *annotations: Json, logprobs: tuple[Json, ...] = ()) -> Json:
    """A part of a message."""
    return {"type": "output_text", "text": value, "annotations": list(annotations), "logprobs": list(logprobs)}


def refusal(text: str) -> Json:
    """A part of a message in which the model refuses."""
    return {"type": "refusal", "refusal": text}


def message(number: int, *parts: Json, **fields: Any) -> Json:
    """A message item."""
    item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
    return item | {"content": list(parts)} | fields


def reasoning(number: int, *summary: str, content: list[str] | None = None, **fields: Any) -> Json:
    """A reasoning item."""
    item: Json = {"type": "reasoning", "id": f"rs_{number}"}
    item["summary"] = [{"type": "summary_text", "text": text} for text in summary]
    if content is not None:
        item["content"] = [{"type": "reasoning_text", "text": text} for text in content]
    return item | fields


def code(number: int, script: str | None, outputs: list[Json] | None, status: str = "completed") -> Json:
    """A code run."""
    item = {"type": "code_interpreter_call", "id": f"ci_{number}", "code": script, "container_id": "cntr_1"}
    return item | {"outputs": outputs, "status": status}


def call(number: int, arguments: str, **fields: Any) -> Json:
    """A call of a function tool."""
    item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": "f"}
    return item | {"arguments": arguments, "status": "completed"} | fields


def logs(text: str) -> Json:
    """An output of a code run."""
    return {"type": "logs", "logs": text}


def search(number: int, action: Json | None, status: str = "completed") -> Json:
    """A search of the web."""
    item = {"type": "web_search_call", "id": f"ws_{number}", "status": status}
    return item if action is None else item | {"action": action}


def find(number: int, queries: list[str], results: list[Json] | None, status: str = "completed") -> Json:
    """A search of files."""
    item = {"type": "file_search_call", "id": f"fs_{number}", "status": status}
    return item | {"queries": queries, "results": results}


def mcp(number: int, arguments: str, output: str | None, error: Any = None) -> Json:
    """A call of a tool of a hosted MCP server."""
    item = {"type": "mcp_call", "id": f"mcp_{number}", "name": "roll", "server_label": "dice", "arguments": arguments}
    result_fields = {"output": output, "error": error, "approval_request_id": None}
    return item | result_fields | {"status": "failed" if error else "completed"}


def image(number: int, result: str | None = PNG, **fields: Any) -> Json:
    """A generated image."""
    item = {"type": "image_generation_call", "id": f"ig_{number}", "status": "completed", "result": result}
    return item | fields


TOOLS = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "dice", "error": None}
TOOLS |= {"tools": [{"name": "roll", "input_schema": {"type": "object"}, "annotations": None, "description": None}]}
MCP_APPROVAL = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "name": "roll",
    "server_label": "dice",
    "arguments": '{"a":1}',
}
GREP = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "grep", "input": "a+b"}
GREP |= {"status": "completed"}
LOCAL_SHELL = {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_1", "status": "completed"}
LOCAL_SHELL |= {"action": {"type": "exec", "command": ["ls", "-a"], "env": {"A": "b"}, "working_directory": "/x"}}
SHELL = {"type": "shell_call", "id": "sh_1", "call_id": "call_1", "status": "completed"}
SHELL |= {"action": {"commands": ["ls", "pwd"], "timeout_ms": 5, "max_output_length": 7}}
SHELL |= {"environment": {"type": "container_reference", "container_id": "cntr_1"}}
SHELL_OUTPUT = {"type": "shell_call_output", "id": "sho_1", "call_id": "call_1", "status": "completed"}
SHELL_OUTPUT |= {
    "max_output_length": 7,
    "output": [
        {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
        {"stdout": "", "stderr": "e", "outcome": {"type": "timeout"}},
    ],
}
CLICK = {"type": "computer_call", "id": "cu_1", "call_id": "call_1", "status": "completed"}
CLICK |= {"action": {"type": "click", "button": "left", "x": 1, "y": 2}}
CLICK |= {"pending_safety_checks": [{"id": "s", "code": "c", "message": "m"}]}
PATCH = {"type": "apply_patch_call", "id": "apc_1", "call_id": "call_1", "status": "completed"}
PATCH |= {"operation": {"type": "create_file", "path": "a", "diff": "+x"}}
TOOL_SEARCH_OUTPUT = {"type": "tool_search_output", "id": "tso_1", "call_id": None, "execution": "server", "tools": []}
TOOL_SEARCH_CALL = {
    "type": "tool_search_call",
    "id": "tsc_1",
    "call_id": None,
    "execution": "server",
    "status": "completed",
}
TOOL_SEARCH_CALL |= {"arguments": {"paths": ["a"]}}
PROGRAM = {"type": "program", "id": "cm_1", "call_id": "call_0", "code": "await f()", "fingerprint": "fp"}
PROGRAM_OUTPUT = {"type": "program_output", "id": "cmo_1", "call_id": "call_0", "result": "r", "status": "completed"}
TELEPATHY = {"type": "telepathy_call", "id": "tp_1", "status": "completed", "thought": "x", "nested": {"a": [1]}}
CALL_OUTPUT = {
    "type": "function_call_output",
    "id": "fco_1",
    "call_id": "call_1",
    "output": "ok",
    "status": "completed",
}

OUTPUTS: dict[str, list[Json]] = {
    "code with logs and images between texts": [
        reasoning(1, "one", "two", encrypted_content="gAA1"),
        code(1, "print(1)\n", [logs("1\n"), IMAGE, logs("x")]),
        reasoning(2, "three", encrypted_content="gAA2"),
        message(1, text("Now "), phase="commentary"),
        code(2, "plot()", [IMAGE, IMAGE]),
        code(3, "", []),
        code(4, "z", None),
        code(5, None, [logs("")]),
        message(2, text("see b.csv", CONTAINER_FILE), text("more", link(0, 2), FILE, PATH), phase="final_answer"),
    ],
    "code that failed": [code(1, "x" * 50, [logs("Traceback")], "failed"), code(2, "y", [], "incomplete")],
    "code with outputs of other kinds": [
        code(1, "a", [{"type": "video", "url": "u"}, {"type": "image", "url": "https://e.com/x.png"}, logs("é😀")])
    ],
    "refusal": [message(1, refusal("I cannot."))],
    "refusal between texts": [message(1, text("Well,"), refusal("I cannot."), text(" sorry"))],
    "nothing said": [message(1), message(2, text("")), message(3, refusal(""))],
    "empty part between parts": [message(1, text("a"), text(""), text("b"))],
    "equal parts with other citations": [message(1, text("a", link(0, 1)), text("a"), text("a", link(0, 1, 2)))],
    "equal messages": [message(1, text("a"), phase="commentary"), message(2, text("a"), phase="final_answer")],
    "custom tools": [GREP, GREP | {"id": "ctc_2", "call_id": "call_2", "input": "", "namespace": "n"}],
    "mcp": [
        TOOLS,
        mcp(1, '{"a": 1}', "6"),
        mcp(2, "{}", None, "boom"),
        mcp(3, "{}", ""),
        mcp(4, "", None),
        mcp(5, "{}", "half", {"type": "http_error", "code": 1}),
        message(1, text("6")),
    ],
    "mcp tools that cannot be listed": [TOOLS | {"tools": [], "error": "no"}, message(1, text("none"))],
    "mcp approval": [MCP_APPROVAL],
    "web searches": [
        search(1, {"type": "search", "query": "q", "sources": [{"type": "url", "url": "https://e.com"}]}),
        search(2, {"type": "open_page", "url": "https://e.com"}),
        search(3, {"type": "find_in_page", "url": "https://e.com", "pattern": "p"}),
        search(4, {"type": "search", "query": "q", "sources": [{"type": "api", "name": "weather"}]}, "failed"),
        search(5, None),
        message(
            1,
            text("see 1", link(0, 3), link(0, 3), link(1, 2, 2)),
            text("and", link(0, 1, 3), FILE, CONTAINER_FILE),
        ),
    ],
    "file searches": [
        find(1, ["a", "b"], [{"file_id": "f", "filename": "n", "score": 0.5, "text": "t", "attributes": {"k": 1}}]),
        find(2, [], None),
        find(3, ["q"], [], "incomplete"),
        message(1, text("x", FILE, FILE)),
    ],
    "images": [
        image(1, revised_prompt="cat", size="1x1", quality="low", background="opaque", action="generate"),
        image(2, JPEG, output_format="jpeg"),
        image(3, None, status="failed"),
        message(1, text("done")),
    ],
    "local shell": [LOCAL_SHELL],
    "shell": [SHELL, SHELL_OUTPUT, message(1, text("x"))],
    "computer": [reasoning(1), CLICK],
    "patch": [PATCH],
    "tool search": [TOOL_SEARCH_CALL, TOOL_SEARCH_OUTPUT, call(1, "{}", namespace="n")],
    "compaction": [{"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"}, message(1, text("x"))],
    "program": [PROGRAM, call(1, "{}", caller={"type": "program", "caller_id": "cm_1"}), PROGRAM_OUTPUT],
    "unknown items": [message(1, text("a")), TELEPATHY, message(2, text("b"))],
    "unknown fields": [
        message(1, text("a") | {"novel": {"x": 1}}, mood="glad"),
        call(1, "{}", novel=[1]),
        reasoning(1, "s", novel="n"),
        code(1, "x", [logs("1") | {"novel": 2}]) | {"novel": True},
    ],
    "unknown part": [message(1, text("a"), {"type": "output_audio", "data": "eA==", "transcript": "t"}, text("b"))],
    "unknown citations": [message(1, text("a", {"type": "magic", "spell": "x"}, link(0, 1) | {"novel": 1}))],
    "reasoning text": [reasoning(1, content=["think", "more"]), message(1, text("a"))],
    "reasoning with summary and text": [
        reasoning(1, "sum", "mary", content=["think"], encrypted_content="g", status="completed"),
        reasoning(2, content=[], encrypted_content="g"),
        reasoning(3, "", "a", "", "a", encrypted_content="g"),
        reasoning(4, "x", encrypted_content=None),
        reasoning(5),
        message(1, text("a")),
    ],
    "parallel calls": [reasoning(1, encrypted_content="g"), *(call(n, json.dumps({"n": n})) for n in range(4))],
    "calls of one call id": [call(1, '{"a":1}', call_id="c"), call(2, '{"b":1}', call_id="c")],
    "calls without arguments": [call(1, ""), call(2, "{}"), call(3, '{"a":')],
    "asynchronous call": [call(1, "{}", **{"async": True})],
    "call that the service answers": [call(1, "{}"), CALL_OUTPUT, message(1, text("a"))],
    "odd texts": [message(1, text("a\x00b\u2028c\r\n")), call(1, '{"a":"\\ud83d"}')],
    "cut off in a text": [reasoning(1, "s"), message(1, text("cut o"), status="incomplete")],
    "cut off in a call": [call(1, '{"a": "unfini', status="incomplete")],
    "cut off in reasoning": [reasoning(1, "half a", status="incomplete")],
    "cut off in code": [code(1, "print(", None, "incomplete")],
}
"""What the answer has → its output items."""


def build_response_body(output: list[Json], status: str = "completed") -> Json:
    """Make the final response of an output."""
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    body = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": status, "usage": usage}
    details = {"incomplete_details": {"reason": "max_output_tokens"}} if status == "incomplete" else {}
    return body | {"output": output, "tools": [], "parallel_tool_calls": True} | details


def build_events(body: Json) -> list[Json]:
    """Write the stream of a response, with drafts of images, empty deltas and padding."""
    initial_body = body | {"output": [], "status": "in_progress", "usage": None}
    events = [{"type": f"response.{kind}", "response": initial_body} for kind in ("created", "in_progress")]
    for output_index, item in enumerate(body["output"]):
        events += _lane(item, output_index)
    events.append({"type": f"response.{body['status']}", "response": body})
    return [event | {"sequence_number": number} for number, event in enumerate(events)]


def _lane(item: Json, output_index: int) -> Iterator[Json]:
    kind = item["type"]
    initial_item = {
        name: _INITIAL_FIELDS.get(kind, {}).get(name, value) for name, value in item.items() if name not in _LATE
    }
    yield {"type": "response.output_item.added", "output_index": output_index, "item": initial_item}
    for event in _inner(item, kind):
        id_field = {} if "command_index" in event else {"item_id": item["id"]}
        yield {**event, "type": f"response.{event['type']}", "output_index": output_index} | id_field
    yield {"type": "response.output_item.done", "output_index": output_index, "item": item}


_LATE = {"action", "encrypted_content", "result", "revised_prompt"}
_INITIAL_FIELDS: dict[str, Json] = {
    "message": {"content": [], "status": "in_progress"},
    "reasoning": {"summary": [], "content": None},
    "function_call": {"arguments": "", "status": "in_progress"},
    "code_interpreter_call": {"code": "", "outputs": None, "status": "in_progress"},
    "custom_tool_call": {"input": ""},
    "mcp_call": {"arguments": "", "output": None, "error": None, "status": "in_progress"},
    "mcp_list_tools": {"tools": []},
    "web_search_call": {"status": "in_progress"},
    "file_search_call": {"queries": [], "results": None, "status": "in_progress"},
    "image_generation_call": {"status": "in_progress"},
}


def _inner(item: Json, kind: str) -> Iterator[Json]:
    write = _INNER.get(kind)
    if write is not None:
        yield from write(item)
    elif kind in _TEXTS:
        event, name = _TEXTS[kind]
        yield {"type": f"{kind}.in_progress"}
        yield from _text_events(event, item[name] or "", {}, name)
        yield {"type": f"{kind}.interpreting"}
    else:
        yield {"type": f"{kind}.in_progress"}
        yield {"type": f"{kind}.thinking", "delta": {"x": 1}}


def _message(item: Json) -> Iterator[Json]:
    for number, part in enumerate(item["content"]):
        yield from _part({"content_index": number}, part)


def _reasoning(item: Json) -> Iterator[Json]:
    for number, part in enumerate(item["summary"]):
        yield from _text_events("reasoning_summary_text", part["text"], {"summary_index": number})
    for number, part in enumerate(item.get("content") or []):
        yield from _text_events("reasoning_text", part["text"], {"content_index": number})


def _image(item: Json) -> Iterator[Json]:
    for number in range(3 if item["result"] else 0):
        draft = {"partial_image_b64": PNG, "partial_image_index": number}
        yield {"type": "image_generation_call.partial_image", **draft}


def _shell(item: Json) -> Iterator[Json]:
    for number, command in enumerate(item["action"]["commands"]):
        yield from _text_events("shell_call_command", command, {"command_index": number}, "command")


_INNER = {"message": _message, "reasoning": _reasoning, "image_generation_call": _image, "shell_call": _shell}
_TEXTS = {
    "function_call": ("function_call_arguments", "arguments"),
    "code_interpreter_call": ("code_interpreter_call_code", "code"),
    "mcp_call": ("mcp_call_arguments", "arguments"),
    "custom_tool_call": ("custom_tool_call_input", "input"),
}


def _part(location: Json, part: Json) -> Iterator[Json]:
    blanks = {"text": "", "refusal": "", "annotations": [], "logprobs": []}
    initial_part = {name: blanks.get(name, value) for name, value in part.items()}
    yield {"type": "content_part.added", **location, "part": initial_part}
    if part["type"] == "output_text":
        yield {"type": "output_text.delta", **location, "delta": "", "logprobs": [], "obfuscation": "xyz"}
        *deltas, done = _text_events("output_text", part["text"], location)
        for number, delta in enumerate(deltas):
            yield delta | {"logprobs": [] if number else part["logprobs"]}
        for number, annotation in enumerate(part["annotations"]):
            yield {
                "type": "output_text.annotation.added",
                **location,
                "annotation_index": number,
                "annotation": annotation,
            }
        yield done | {"logprobs": part["logprobs"]}
    elif part["type"] == "refusal":
        yield from _text_events("refusal", part["refusal"], location, "refusal")
    yield {"type": "content_part.done", **location, "part": part}


def _text_events(kind: str, text: str, location: Json, name: str = "text") -> Iterator[Json]:
    for start in range(0, len(text), 3):
        yield {"type": f"{kind}.delta", **location, "delta": text[start : start + 3], "obfuscation": "x" * (start % 4)}
    yield {"type": f"{kind}.done", **location, name: text}
