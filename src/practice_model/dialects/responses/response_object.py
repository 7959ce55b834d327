"""The response object around the items: fields required by the openai package's types, and usage numbers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.transcript import Transcript

_ECHOED_DEFAULTS: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "auto",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
    "metadata": {},
}
"""Request fields that a response repeats, with the default if the request omits them."""

_CHARACTERS_PER_TOKEN = 4


def build_completed(
    request: Mapping[str, Any], *, response_id: str, created_at: int, output: Sequence[Json], transcript: Sequence[Json]
) -> Json:
    """Return a completed response with these items."""
    response: Json = {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "status": "completed",
        "background": bool(request.get("background")),
        "completed_at": created_at,
        "error": None,
        "incomplete_details": None,
        "model": request["model"],
        "output": list(output),
        "usage": count_usage(request, transcript, output),
    }
    response |= {
        name: default if request.get(name) is None else request[name] for name, default in _ECHOED_DEFAULTS.items()
    }
    conversation = request.get("conversation")
    if conversation:
        response["conversation"] = conversation if isinstance(conversation, dict) else {"id": conversation}
    return response


def build_started(response: Mapping[str, Any], status: str = "in_progress") -> Json:
    """Return the response of `created`, `queued` and `in_progress` events."""
    blank: Json = {"status": status, "output": [], "usage": None, "completed_at": None, "error": None}
    return dict(response) | blank | {"incomplete_details": None}


def build_failed(response: Mapping[str, Any], error: Mapping[str, Any]) -> Json:
    """Return the response after an error event."""
    error_fields = {"code": error.get("code"), "message": error.get("message")}
    return dict(response) | {"status": "failed", "error": error_fields, "usage": None, "completed_at": None}


def build_incomplete(response: Mapping[str, Any], reason: str) -> Json:
    """Return an incomplete response; the last item's status, if any, becomes `incomplete`."""
    output: list[Json] = [dict(item) for item in response["output"]]
    if output and "status" in output[-1]:
        output[-1]["status"] = "incomplete"
    details = {"reason": reason}
    return dict(response) | {"status": "incomplete", "incomplete_details": details, "output": output}


def count_usage(request: Mapping[str, Any], transcript: Sequence[Json], output: Sequence[Json]) -> Json:
    """Return token counts proportional to the text read and written."""
    request_text = json.dumps([request.get("instructions"), request.get("tools")])
    transcript_characters = (
        transcript.characters if isinstance(transcript, Transcript) else len(json.dumps(list(transcript)))
    )
    input_tokens = (len(request_text) + len(", ") + transcript_characters) // _CHARACTERS_PER_TOKEN + 1
    reasoning_tokens = sum(64 for item in output if item["type"] == "reasoning")
    visible_items = [item for item in output if item["type"] != "reasoning"]
    output_tokens = reasoning_tokens + len(json.dumps(visible_items)) // _CHARACTERS_PER_TOKEN + 1
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": input_tokens + output_tokens,
    }
