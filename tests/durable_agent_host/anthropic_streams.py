"""Recorded streams of Anthropic, parsed by the real client."""

import json
from functools import cache
from typing import Any

from agent_framework_anthropic._chat_client import _AnthropicRequestState
from anthropic._models import construct_type_unchecked
from anthropic.types.beta import BetaRawMessageStreamEvent

from durable_agent_host.providers.anthropic.provider import ANTHROPIC
from tests.durable_agent_host.anthropic_lab import AnthropicLab
from tests.kit import RECORDINGS

FOLDER = RECORDINGS / "anthropic"


@cache
def recorded_streams() -> dict[str, list[dict[str, Any]]]:
    """The events of every recorded stream, by its name."""
    return {
        str(path.relative_to(FOLDER)): [json.loads(line)["data"] for line in path.read_text().splitlines()]
        for path in sorted(FOLDER.rglob("*.jsonl"))
    }


def parse_updates(events):
    """The updates that the hosted client makes of events."""
    client = ANTHROPIC.adapt(AnthropicLab.bare_client())
    state = _AnthropicRequestState()
    updates = []
    for event in events:
        if event["type"] in {"ping", "error"}:
            continue
        stream_event = construct_type_unchecked(type_=BetaRawMessageStreamEvent, value=event)
        update = client._process_stream_event(stream_event, {}, request_state=state)
        updates += getattr(update, "updates", [update]) if update is not None else []
    return updates


def blocks_of(events):
    """The blocks of a stream, as the service's rules put them together."""
    blocks, by_index, inputs = [], {}, {}
    for event in events:
        match event["type"]:
            case "message_start":
                blocks += event["message"]["content"]
            case "content_block_start":
                by_index[event["index"]] = dict(event["content_block"])
                blocks.append(by_index[event["index"]])
            case "content_block_delta":
                _add(by_index[event["index"]], event["delta"], inputs)
    for block in blocks:
        if text := inputs.get(id(block)):
            block["input"] = json.loads(text)
    return blocks


def _add(block, delta, inputs):
    match delta["type"]:
        case "input_json_delta":
            inputs[id(block)] = inputs.get(id(block), "") + delta["partial_json"]
        case "citations_delta":
            block["citations"] = [*block.get("citations", []), delta["citation"]]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case "compaction_delta":
            block["content"] = (block["content"] or "") + delta["content"]
        case "text_delta" | "thinking_delta" as kind:
            name = kind.removesuffix("_delta")
            block[name] += delta[name]
        case unknown:
            raise AssertionError(unknown)
