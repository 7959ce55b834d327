"""Checks any Responses stream against the grammar, for tests.

Theory: three checks. The envelope (created, in progress, items, terminal) and the numbering are checked on the whole
list. Each item's inner events, from `added` to `done`, become a string of short names that the item type's regular
expression in `INNER` must match. The deltas must join to the text of the `done` event.

Source: 311 recorded Responses streams.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from practice_model.dialects.responses.items import Json

TERMINALS = ("response.completed", "response.incomplete", "response.failed")

INNER: dict[str, str] = {
    "message": (
        r"(content_part\.added (output_text\.(delta|annotation\.added) )*output_text\.done "
        r"content_part\.done |content_part\.added (refusal\.delta )*refusal\.done content_part\.done )*"
    ),
    "reasoning": (
        r"(reasoning_summary_part\.added (reasoning_summary_text\.delta )+reasoning_summary_text\.done "
        r"reasoning_summary_part\.done )*|(reasoning_text\.delta )+reasoning_text\.done "
    ),
    "function_call": r"(function_call_arguments\.delta )+function_call_arguments\.done ",
    "code_interpreter_call": (
        r"code_interpreter_call\.in_progress (code_interpreter_call_code\.delta )+code_interpreter_call_code\.done "
        r"code_interpreter_call\.interpreting code_interpreter_call\.completed "
    ),
    "web_search_call": r"web_search_call\.in_progress web_search_call\.searching web_search_call\.completed ",
    "file_search_call": r"file_search_call\.in_progress file_search_call\.searching file_search_call\.completed ",
    "mcp_list_tools": r"mcp_list_tools\.in_progress mcp_list_tools\.(completed|failed) ",
    "mcp_call": (
        r"mcp_call\.in_progress (mcp_call_arguments\.delta )*(mcp_call\.in_progress )?mcp_call_arguments\.done "
        r"mcp_call\.(completed|failed) "
    ),
    "image_generation_call": (
        r"image_generation_call\.in_progress image_generation_call\.generating "
        r"(image_generation_call\.partial_image )*(image_generation_call\.completed )?"
    ),
    "custom_tool_call": r"(custom_tool_call_input\.delta )+(custom_tool_call_input\.done )?",
}
"""Item type → its inner events, each without `response.` and followed by a blank; other types may have any."""

_DONE_FIELDS: dict[str, str] = {
    "output_text": "text",
    "refusal": "refusal",
    "function_call_arguments": "arguments",
    "code_interpreter_call_code": "code",
    "reasoning_summary_text": "text",
    "mcp_call_arguments": "arguments",
}
"""Event family → the field of its `done` event that the deltas join to."""


def find_stream_violations(events: Sequence[Json]) -> list[str]:
    """Return all violations of the grammar; an empty list for a valid stream."""
    if not events:
        return ["the stream is empty"]
    return [*_find_envelope_violations(events), *_find_numbering_violations(events), *_find_item_violations(events)]


def _find_envelope_violations(events: Sequence[Json]) -> Iterator[str]:
    kinds = [event["type"] for event in events]
    expected_kinds = ["response.created", "response.in_progress"]
    if events[0].get("response", {}).get("background"):
        expected_kinds.insert(1, "response.queued")
    if kinds[: len(expected_kinds)] != expected_kinds:
        yield f"the stream opens with {kinds[: len(expected_kinds)]}, not with {expected_kinds}"
    if kinds[-1] not in TERMINALS:
        yield f"the stream ends with {kinds[-1]}"
    for kind in (*expected_kinds, *TERMINALS):
        if kinds.count(kind) > 1:
            yield f"{kind} comes {kinds.count(kind)} times"
    first_response = events[0].get("response", {})
    if first_response.get("output") or first_response.get("usage"):
        yield "response.created already has output or usage"


def _find_numbering_violations(events: Sequence[Json]) -> Iterator[str]:
    sequence_numbers = [event.get("sequence_number") for event in events]
    if sequence_numbers not in (list(range(len(events))), [None] * len(events)):
        yield "sequence_number does not count from 0 by 1"


def _find_item_violations(events: Sequence[Json]) -> Iterator[str]:
    inner_events: dict[int, list[Json]] = defaultdict(list)
    added_items: dict[int, Json] = {}
    done_items: list[Json] = []
    for event in events:
        index = event.get("output_index")
        if index is None:
            continue
        if event["type"] == "response.output_item.added":
            if index != len(added_items):
                yield f"output_index {index} is added as item number {len(added_items)}"
            added_items[index] = event["item"]
        elif event["type"] == "response.output_item.done":
            yield from _find_inner_violations(added_items.get(index), event["item"], inner_events[index])
            done_items.append(event["item"])
        elif len(done_items) > index:
            yield f"{event['type']} comes after item {index} was done"
        else:
            inner_events[index].append(event)
    if len(done_items) != len(added_items):
        yield f"{len(added_items)} items were added and {len(done_items)} were done"
    output = events[-1].get("response", {}).get("output")
    if output and [item["id"] for item in output] != [item["id"] for item in done_items]:
        yield "the terminal event's output differs from the items of the stream"


def _find_inner_violations(added_item: Json | None, item: Json, inner_events: Sequence[Json]) -> Iterator[str]:
    item_type = item["type"]
    if added_item is None or (added_item["type"], added_item.get("id")) != (item_type, item.get("id")):
        yield f"item {item.get('id')} was not added under this id and type"
        return
    if any("item_id" in event and event["item_id"] != item["id"] for event in inner_events):
        yield f"an inner event of {item['id']} names another item"
    names = "".join(event["type"].removeprefix("response.") + " " for event in inner_events)
    if item_type in INNER and not re.fullmatch(INNER[item_type], names):
        yield f"{item_type} {item['id']} has inner events {names!r}"
    yield from _find_delta_violations(inner_events)


def _find_delta_violations(inner_events: Sequence[Json]) -> Iterator[str]:
    texts: dict[tuple[Any, ...], str] = defaultdict(str)
    for event in inner_events:
        family, _, event_name = event["type"].removeprefix("response.").rpartition(".")
        text_key = (family, event.get("content_index"), event.get("summary_index"))
        if event_name == "delta" and family in _DONE_FIELDS:
            texts[text_key] += event["delta"]
        elif event_name == "done" and family in _DONE_FIELDS and texts[text_key] != event[_DONE_FIELDS[family]]:
            yield f"the deltas of {family} do not join to its done event"
