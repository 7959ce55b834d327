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


def stream_faults(events: Sequence[Json]) -> list[str]:
    """Return all violations of the grammar; an empty list for a valid stream.

    Guarantee: pure.
    """
    if not events:
        return ["the stream is empty"]
    return [*_envelope_faults(events), *_number_faults(events), *_item_faults(events)]


def _envelope_faults(events: Sequence[Json]) -> Iterator[str]:
    kinds = [event["type"] for event in events]
    opening = ["response.created", "response.in_progress"]
    if events[0].get("response", {}).get("background"):
        opening.insert(1, "response.queued")
    if kinds[: len(opening)] != opening:
        yield f"the stream opens with {kinds[: len(opening)]}, not with {opening}"
    if kinds[-1] not in TERMINALS:
        yield f"the stream ends with {kinds[-1]}"
    for kind in (*opening, *TERMINALS):
        if kinds.count(kind) > 1:
            yield f"{kind} comes {kinds.count(kind)} times"
    first = events[0].get("response", {})
    if first.get("output") or first.get("usage"):
        yield "response.created already has output or usage"


def _number_faults(events: Sequence[Json]) -> Iterator[str]:
    numbers = [event.get("sequence_number") for event in events]
    if numbers not in (list(range(len(events))), [None] * len(events)):
        yield "sequence_number does not count from 0 by 1"


def _item_faults(events: Sequence[Json]) -> Iterator[str]:
    inner: dict[int, list[Json]] = defaultdict(list)
    opened: dict[int, Json] = {}
    done: list[Json] = []
    for event in events:
        index = event.get("output_index")
        if index is None:
            continue
        if event["type"] == "response.output_item.added":
            if index != len(opened):
                yield f"output_index {index} is added as item number {len(opened)}"
            opened[index] = event["item"]
        elif event["type"] == "response.output_item.done":
            yield from _one_item_faults(opened.get(index), event["item"], inner[index])
            done.append(event["item"])
        elif len(done) > index:
            yield f"{event['type']} comes after item {index} was done"
        else:
            inner[index].append(event)
    if len(done) != len(opened):
        yield f"{len(opened)} items were added and {len(done)} were done"
    output = events[-1].get("response", {}).get("output")
    if output and [item["id"] for item in output] != [item["id"] for item in done]:
        yield "the terminal event's output differs from the items of the stream"


def _one_item_faults(opened: Json | None, item: Json, inner: Sequence[Json]) -> Iterator[str]:
    kind = item["type"]
    if opened is None or (opened["type"], opened.get("id")) != (kind, item.get("id")):
        yield f"item {item.get('id')} was not added under this id and type"
        return
    if any("item_id" in event and event["item_id"] != item["id"] for event in inner):
        yield f"an inner event of {item['id']} names another item"
    names = "".join(event["type"].removeprefix("response.") + " " for event in inner)
    if kind in INNER and not re.fullmatch(INNER[kind], names):
        yield f"{kind} {item['id']} has inner events {names!r}"
    yield from _delta_faults(inner)


def _delta_faults(inner: Sequence[Json]) -> Iterator[str]:
    texts: dict[tuple[Any, ...], str] = defaultdict(str)
    for event in inner:
        family, _, last = event["type"].removeprefix("response.").rpartition(".")
        place = (family, event.get("content_index"), event.get("summary_index"))
        if last == "delta" and family in _DONE_FIELDS:
            texts[place] += event["delta"]
        elif last == "done" and family in _DONE_FIELDS and texts[place] != event[_DONE_FIELDS[family]]:
            yield f"the deltas of {family} do not join to its done event"
