"""Final output items, as in `response.output_item.done`.

Source: recorded OpenAI and Azure Responses streams.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from practice_model.dialects.responses import sealed
from practice_model.dialects.responses.ids import IdGenerator

Json = dict[str, Any]

_PIXEL_BYTES = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
PIXEL = f"data:image/png;base64,{_PIXEL_BYTES}"
"""A complete one-pixel PNG, for image outputs."""

SANDBOX = "sandbox:/mnt/data/"


def file_bytes(name: str) -> bytes:
    """Return the content of a file that code has written: an image if the name ends in `.png`, else text."""
    return base64.b64decode(_PIXEL_BYTES) if name.endswith(".png") else f"written by code: {name}\n".encode()


def build_message(
    id_generator: IdGenerator, text: str, annotations: Sequence[Json] = (), phase: str | None = None
) -> Json:
    """Return an assistant message with one text part."""
    part = {"type": "output_text", "annotations": list(annotations), "logprobs": [], "text": text}
    item: Json = {"id": id_generator.new("msg_"), "type": "message", "status": "completed", "content": [part]}
    item |= {"phase": phase} if phase else {}
    return item | {"role": "assistant"}


def build_reasoning(id_generator: IdGenerator, text: str, *, is_encrypted: bool) -> Json:
    """Return a reasoning item; with `is_encrypted`, it has a value that this server recognises on replay."""
    item_id = id_generator.new("rs_")
    parts = [{"type": "summary_text", "text": text}] if text else []
    item: Json = {"id": item_id, "type": "reasoning", "summary": parts}
    return item | ({"encrypted_content": sealed.sign_reasoning(item_id, text)} if is_encrypted else {})


def build_compaction(id_generator: IdGenerator, text: str) -> Json:
    """Return an item that replaces everything before it, with a value that this server recognises on replay."""
    item_id = id_generator.new("cmp_")
    return {"id": item_id, "type": "compaction", "encrypted_content": sealed.sign_reasoning(item_id, text)}


def build_function_call(id_generator: IdGenerator, name: str, arguments: Mapping[str, Any] | str) -> Json:
    """Return a call of a function tool; arguments in a string are not modified."""
    arguments_text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {
        "id": id_generator.new("fc_"),
        "type": "function_call",
        "status": "completed",
        "arguments": arguments_text,
        "call_id": id_generator.new("call_"),
        "name": name,
    }


def build_code_call(
    id_generator: IdGenerator,
    code: str,
    container_id: str,
    *,
    logs: str | None,
    has_image: bool = False,
    include_outputs: bool,
) -> Json:
    """Return a hosted code run; without `include_outputs` its outputs are null, as on the live API."""
    outputs: list[Json] = [{"type": "logs", "logs": logs}] if logs else []
    outputs += [{"type": "image", "url": PIXEL}] if has_image else []
    return {
        "id": id_generator.new("ci_"),
        "type": "code_interpreter_call",
        "status": "completed",
        "code": code,
        "container_id": container_id,
        "outputs": outputs if include_outputs else None,
    }


def cite_files(
    id_generator: IdGenerator, text: str, container_id: str, filenames: Sequence[str]
) -> tuple[str, list[Json]]:
    """Return the text with a sandbox link per file, and the citations of the links in order.

    Files without a link in the text get one appended.
    """
    for name in filenames:
        if SANDBOX + name not in text:
            text += f"\n- [{name}]({SANDBOX}{name})"
    citations: list[Json] = []
    for name in filenames:
        start = text.index(SANDBOX + name)
        citations.append(
            {
                "type": "container_file_citation",
                "container_id": container_id,
                "end_index": start + len(SANDBOX + name),
                "file_id": id_generator.new("cfile_"),
                "filename": name,
                "start_index": start,
            }
        )
    return text, sorted(citations, key=lambda citation: int(citation["start_index"]))
