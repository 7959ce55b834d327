"""Values of the messages of Chat Completions."""

from typing import Any

from tests.durable_agent_host.provider_table.probes import MARK, Probe, probe, probe_arguments


def _message(**fields: Any) -> dict[str, Any]:
    return {"type": "chat.completion.message", "content": "Done.", **fields}


def _detail(kind: str, **fields: Any) -> dict[str, Any]:
    return _message(reasoning_details=[{"type": f"reasoning.{kind}", "index": 0, **fields}])


_SIGNED = {"google": {"thought_signature": MARK}}
_CALL = {"id": "call_1", "type": "function", "function": {"name": "note", "arguments": '{"text": "x"}'}}

PROBES: tuple[Probe, ...] = (
    probe("message", "content", _message(content=MARK), is_answer=True),
    probe("message", "refusal", _message(content=None, refusal=MARK), is_answer=True),
    probe("message", "reasoning_content", _message(reasoning_content=MARK), is_answer=True),
    probe("message", "reasoning", _message(reasoning=MARK), is_answer=True),
    probe("reasoning_details", "text", _detail("text", text=MARK, signature="c2ln"), is_answer=True),
    probe("reasoning_details", "signature", _detail("text", text="x", signature=MARK), is_answer=True),
    probe("reasoning_details", "data", _detail("encrypted", data=MARK), is_answer=True),
    probe(
        "annotations",
        "url",
        _message(annotations=[{"type": "url_citation", "url_citation": {"url": MARK}}]),
        is_answer=True,
    ),
    probe("audio", "id", _message(content=None, audio={"id": MARK, "transcript": "Done."}), is_answer=True),
    probe("audio", "transcript", _message(content=None, audio={"id": "a", "transcript": MARK}), is_answer=True),
    probe(
        "images",
        "url",
        _message(images=[{"type": "image_url", "image_url": {"url": f"https://x/{MARK}.png"}}]),
        is_answer=True,
    ),
    Probe(
        "tool_calls",
        "extra_content",
        (({"item": _message(content=None, tool_calls=[{**_CALL, "extra_content": _SIGNED}])},), ({"text": "Done."},)),
    ),
    probe_arguments("tool_calls", "arguments"),
    probe("message", "a field that nobody knows", _message(mood=MARK), is_answer=True),
)
