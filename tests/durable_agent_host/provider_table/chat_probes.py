"""Values of the messages of Chat Completions."""

from typing import Any

from tests.durable_agent_host.provider_table.measuring import MARK, Probe, called, probe


def _said(**fields: Any) -> dict[str, Any]:
    return {"type": "chat.completion.message", "content": "Done.", **fields}


def _detail(kind: str, **fields: Any) -> dict[str, Any]:
    return _said(reasoning_details=[{"type": f"reasoning.{kind}", "index": 0, **fields}])


_SIGNED = {"google": {"thought_signature": MARK}}
_CALL = {"id": "call_1", "type": "function", "function": {"name": "note", "arguments": '{"text": "x"}'}}

PROBES: tuple[Probe, ...] = (
    probe("message", "content", _said(content=MARK), ends=True),
    probe("message", "refusal", _said(content=None, refusal=MARK), ends=True),
    probe("message", "reasoning_content", _said(reasoning_content=MARK), ends=True),
    probe("message", "reasoning", _said(reasoning=MARK), ends=True),
    probe("reasoning_details", "text", _detail("text", text=MARK, signature="c2ln"), ends=True),
    probe("reasoning_details", "signature", _detail("text", text="x", signature=MARK), ends=True),
    probe("reasoning_details", "data", _detail("encrypted", data=MARK), ends=True),
    probe(
        "annotations", "url", _said(annotations=[{"type": "url_citation", "url_citation": {"url": MARK}}]), ends=True
    ),
    probe("audio", "id", _said(content=None, audio={"id": MARK, "transcript": "Done."}), ends=True),
    probe("audio", "transcript", _said(content=None, audio={"id": "a", "transcript": MARK}), ends=True),
    probe(
        "images", "url", _said(images=[{"type": "image_url", "image_url": {"url": f"https://x/{MARK}.png"}}]), ends=True
    ),
    Probe(
        "tool_calls",
        "extra_content",
        (({"item": _said(content=None, tool_calls=[{**_CALL, "extra_content": _SIGNED}])},), ({"text": "Done."},)),
    ),
    called("tool_calls", "arguments"),
    probe("message", "a field that nobody knows", _said(mood=MARK), ends=True),
)
