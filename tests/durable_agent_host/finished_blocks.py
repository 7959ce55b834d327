"""What a recorded stream says in its finished blocks, read without the host's code, compared with what callers see."""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from typing import Any

from tests.durable_agent_host.gemini_lab import accepted_parts, plain
from tests.durable_agent_host.played_recordings import Played

Json = dict[str, Any]


@dataclass
class Message:
    """A message of the answer.

    Attributes:
        text: of the message.
        citations: range, title, URL, id of a file and quote of each, as far as the block has them.
    """

    text: str = ""
    citations: list[Json] = field(default_factory=list[Json])

    def cite(self, start: int | None, end: int | None, **source: Any) -> None:
        """Add a citation; without a range it is at the end of the text."""
        place = {} if start is None else {"start": start, "end": end}
        self.citations.append(place | {name: value for name, value in source.items() if value})


@dataclass
class Blocks:
    """The finished blocks of a stream.

    Attributes:
        messages: those with a text.
        calls: by id, of hosted calls: values that the arguments contain, and the outcome.
        results: by id of a hosted call: how the texts in its result begin.
    """

    messages: list[Message] = field(default_factory=list[Message])
    calls: dict[str, tuple[list[Any], str]] = field(default_factory=dict[str, tuple[list[Any], str]])
    results: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


def read_blocks(kind: str, events: Sequence[Any]) -> Blocks:
    """Read the finished blocks of a stream."""
    reader = {
        "openai-responses": _responses,
        "anthropic": _anthropic,
        "gemini": _gemini,
        "chat-completions": _chat,
        "azure-ai-agents": _azure,
    }[kind]
    blocks = reader(events)
    blocks.messages = [message for message in blocks.messages if message.text]
    return blocks


def responses_items(events: Sequence[Json]) -> list[Json]:
    """Give the finished items of a stream; the final response may have more."""
    items: dict[Any, Json] = {}
    for event in events:
        if event["type"] == "response.output_item.done":
            items[event.get("output_index", len(items))] = event["item"]
        elif event["type"] in {"response.completed", "response.incomplete"}:
            known_ids = {item.get("id") for item in items.values()}
            for index, item in enumerate(event["response"].get("output") or ()):
                if item.get("id") not in known_ids:
                    items.setdefault(index, item)
    return [item for _, item in sorted(items.items())]


def _responses(events: Sequence[Json]) -> Blocks:
    blocks = Blocks()
    for item in responses_items(events):
        if item["type"] == "message":
            blocks.messages.append(_responses_message(item))
        elif call := _responses_call(item):
            blocks.calls[call[0]] = call[1:]
            fields = ("outputs", "output", "error", "results", "tools")
            result = [item.get(name) for name in fields] + [(item.get("action") or {}).get("sources")]
            blocks.results[call[0]] = _readable(result)
        elif item["type"] == "shell_call_output" and item["call_id"] in blocks.calls:
            codes = [output["outcome"].get("exit_code", 1) for output in item["output"]]
            arguments, _ = blocks.calls[item["call_id"]]
            blocks.calls[item["call_id"]] = arguments, "error" if any(codes) else "success"
            blocks.results[item["call_id"]] = _readable(item["output"])
    return blocks


def _responses_message(item: Json) -> Message:
    message = Message()
    for part in item["content"]:
        start = len(message.text)
        message.text += part.get("text") or part.get("refusal") or ""
        for note in part.get("annotations") or ():
            begin, end = note.get("start_index", note.get("index")), note.get("end_index", note.get("index"))
            source = {name: note.get(name) for name in ("url", "file_id")}
            place = (None, None) if begin is None or end is None else (start + begin, start + end)
            message.cite(*place, title=note.get("title") or note.get("filename"), **source)
    return message


def _responses_call(item: Json) -> tuple[str, list[Any], str] | None:
    outcome = "error" if item.get("error") or item.get("status") == "failed" else "success"
    match item["type"]:
        case "code_interpreter_call":
            return item["id"], [item["code"]], outcome
        case "web_search_call":
            return (
                item["id"],
                [value for value in (item.get("action") or {}).values() if isinstance(value, str)],
                outcome,
            )
        case "file_search_call":
            return item["id"], [*item["queries"]], outcome
        case "mcp_call":
            return item["id"], [item["arguments"]], outcome
        case "image_generation_call":
            return item["id"], [item["revised_prompt"]] if item.get("revised_prompt") else [], outcome
        case "custom_tool_call" if item["call_id"].startswith("xs_call"):
            return item["call_id"], [item["input"]], outcome
        case "shell_call" if "container" in (item.get("environment") or {}).get("type", ""):
            return item["call_id"], [*item["action"]["commands"]], "success"
        case _:
            return None


def anthropic_blocks(events: Sequence[Json]) -> list[Json]:
    """Put the blocks of a stream together, as the service's rules do."""
    blocks: list[Json] = []
    inputs: dict[int, str] = {}
    for event in events:
        match event["type"]:
            case "message_start":
                blocks += event["message"]["content"]
                base = len(blocks)
            case "content_block_start":
                blocks.append(dict(event["content_block"]))
            case "content_block_delta":
                _add_delta(blocks[base + event["index"]], event["delta"], inputs)
            case _:
                pass
    for block in blocks:
        if text := inputs.get(id(block)):
            block["input"] = json.loads(text)
    return blocks


def _add_delta(block: Json, delta: Json, inputs: dict[int, str]) -> None:
    match delta["type"]:
        case "input_json_delta":
            inputs[id(block)] = inputs.get(id(block), "") + delta["partial_json"]
        case "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case "compaction_delta":
            block["content"] = (block["content"] or "") + delta["content"]
        case "text_delta" | "thinking_delta" as kind:
            name = kind.removesuffix("_delta")
            block[name] += delta[name]
        case unknown:
            raise AssertionError(unknown)


def _anthropic(events: Sequence[Json]) -> Blocks:
    blocks = Blocks()
    follows_text = False
    for block in anthropic_blocks(events):
        kind = block["type"]
        if kind == "text":
            if not follows_text:
                blocks.messages.append(Message())
            message = blocks.messages[-1]
            start = len(message.text)
            message.text += block["text"]
            for note in block.get("citations") or ():
                source = {"title": note.get("title") or note.get("document_title"), "quote": note.get("cited_text")}
                url = note.get("url") or note.get("source")
                message.cite(start, len(message.text), url=url, file_id=note.get("file_id"), **source)
        elif kind in {"server_tool_use", "mcp_tool_use"}:
            blocks.calls[block["id"]] = [*_leaves(block["input"])], "not_run"
        elif kind.endswith("_tool_result"):
            content = block.get("content")
            fields = content if isinstance(content, dict) else {}
            has_failed = block.get("is_error") or "error_code" in fields or fields.get("return_code")
            if block["tool_use_id"] in blocks.calls:  # else the call was in another response
                arguments, _ = blocks.calls[block["tool_use_id"]]
                blocks.calls[block["tool_use_id"]] = arguments, "error" if has_failed else "success"
                blocks.results[block["tool_use_id"]] = _readable(content)
        follows_text = kind == "text"
    return blocks


def _gemini(events: Sequence[Json]) -> Blocks:
    blocks = Blocks()
    before = ""
    codes: list[tuple[list[Any], str]] = []
    for event in events:
        for candidate in [candidate for candidate in event.get("candidates") or () if not candidate.get("index")]:
            for part in (candidate.get("content") or {}).get("parts") or ():
                is_text = "text" in part and not part.get("thought")
                if is_text and not part["text"]:
                    continue
                if is_text:
                    if before != "text":
                        blocks.messages.append(Message())
                    blocks.messages[-1].text += part["text"]
                before = "text" if is_text else "other"
                if "executableCode" in part:
                    codes.append(([part["executableCode"]["code"]], "not_run"))
                elif "codeExecutionResult" in part:
                    is_ok = part["codeExecutionResult"]["outcome"] == "OUTCOME_OK"
                    codes[-1] = codes[-1][0], "success" if is_ok else "error"
                    blocks.results[str(len(codes) - 1)] = _readable(part["codeExecutionResult"].get("output"))
                elif "holodeckResult" in part:  # a type that nobody knows is a call that has ended
                    codes.append(([*_leaves(part["holodeckResult"])], "success"))
            _cite_gemini(blocks, candidate.get("groundingMetadata") or {})
    blocks.calls = {str(index): call for index, call in enumerate(codes)}
    return blocks


def _cite_gemini(blocks: Blocks, grounding: Json) -> None:
    chunks = [next(iter(chunk.values())) for chunk in grounding.get("groundingChunks") or ()]
    for support in grounding.get("groundingSupports") or ():
        message = blocks.messages[-1]
        data = message.text.encode()
        segment = support["segment"]
        start = len(data[: segment.get("startIndex", 0)].decode(errors="ignore"))
        end = len(data[: segment["endIndex"]].decode(errors="ignore"))
        for index in support.get("groundingChunkIndices") or ():
            source = {"url": chunks[index].get("uri"), "title": chunks[index].get("title")}
            message.cite(start, end, quote=segment.get("text"), **source)


def _chat(events: Sequence[Any]) -> Blocks:
    message = Message()
    urls: list[str] = []
    notes: list[Json] = []
    for event in [event for event in events if event != "[DONE]"]:
        urls += [url for url in event.get("citations") or () if url not in urls]
        for choice in [choice for choice in event.get("choices") or () if not choice.get("index")]:
            delta = choice.get("delta") or {}
            content = delta.get("content") or delta.get("refusal") or ""
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            message.text += "".join(part["text"] for part in parts if part["type"] == "text")
            message.text += (delta.get("audio") or {}).get("transcript") or ""
            for tool in delta.get("executed_tools") or ():
                for result in (tool.get("search_results") or {}).get("results") or ():
                    message.cite(None, None, url=result["url"], title=result["title"])
            for note in [note for note in delta.get("annotations") or () if note not in notes]:
                notes.append(note)
                source = note.get("url_citation") or note
                place = source.get("start_index"), source.get("end_index")
                message.cite(*place, url=source.get("url"), title=source.get("title"))
    for url in urls:
        message.cite(None, None, url=url)
    return Blocks([message])


def _azure(events: Sequence[tuple[str, Any]]) -> Blocks:
    blocks = Blocks()
    for name, data in events:
        if name == "thread.message.completed":
            blocks.messages.append(message := Message())
            for part in data["content"]:
                text = part.get("text") or {}
                start = len(message.text)
                message.text += text.get("value") or ""
                for note in text.get("annotations") or ():
                    source = note.get(note["type"]) or {}
                    place = start + note["start_index"], start + note["end_index"]
                    message.cite(
                        *place, url=source.get("url"), title=source.get("title"), file_id=source.get("file_id")
                    )
        elif name == "thread.run.step.completed":
            for call in data["step_details"].get("tool_calls") or ():
                if call["type"] == "code_interpreter":
                    blocks.calls[call["id"]] = [call["code_interpreter"]["input"]], "success"
                elif call["type"] != "function":
                    blocks.calls[call["id"]] = [], "success"
                    outputs = [(call.get(call["type"]) or call).get(name) for name in ("output", "results")]
                    blocks.results[call["id"]] = _readable(outputs)
    return blocks


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for element in value.values():
            yield from _leaves(element)
    elif isinstance(value, list):
        for element in value:
            yield from _leaves(element)
    elif isinstance(value, str):
        yield value


def _readable(result: Any) -> list[str]:
    """Return how the texts in a result begin, without names of types and what is encrypted."""
    fields = result if isinstance(result, list) else [result]
    return [text.strip()[:80] for field in fields for text in _leaves(_without_noise(field)) if text.strip()]


def _without_noise(value: Any) -> Any:
    if isinstance(value, Mapping):
        names = [name for name in value if name != "type" and not name.endswith("type") and "encrypted" not in name]
        return {name: _without_noise(value[name]) for name in names}
    return [_without_noise(element) for element in value] if isinstance(value, list) else value


def differences(kind: str, events: Sequence[Any], played: Played) -> list[str]:
    """Compare what callers see with the finished blocks.

    Returns:
        A sentence for each difference.
    """
    blocks = read_blocks(kind, events)
    completed = played.data("message.completed")
    found = [*_compare_messages("message.completed", blocks.messages, completed), *_compare_deltas(played)]
    if played.outcome.status == "completed":
        found += _compare_messages("messages", blocks.messages, played.body["messages"])
        found += _compare_response(played)
    return [*found, *_compare_calls(blocks, played, has_ids=kind != "gemini")]


def _compare_messages(label: str, expected: Sequence[Message], messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    with_text = [message for message in messages if message["text"]]
    if [message.text for message in expected] != [message["text"] for message in with_text]:
        yield f"{label}: {[m['text'] for m in with_text]!r} and not {[m.text for m in expected]!r}"
        return
    for expected_message, message in zip(expected, with_text, strict=True):
        citations = list(message["citations"])
        for citation in expected_message.citations:
            match = next((c for c in citations if citation.items() <= c.items()), None)
            if match is None:
                yield f"{label}: no citation {citation} in {citations}"
            else:
                citations.remove(match)
        if citations and all("start" in citation for citation in expected_message.citations):
            yield f"{label}: further citations {citations}"


def _compare_deltas(played: Played) -> Iterator[str]:
    text = None
    index = 0
    for name, data in played.events:
        if name == "message.started":
            if text is not None or data["index"] != index:
                yield f"message.started {data} while {text!r} is open"
            text = ""
        elif name == "message.delta" and text is not None:
            text += data["text"]
        elif name == "message.delta" and (data["text"] != "\n\n" or not index):
            yield f"message.delta {data} between messages"
        elif name == "message.completed":
            if text is None or (data["index"], data["text"]) != (index, text):
                yield f"message.completed {data} after {text!r}"
            text = None
            index += 1
    if text is not None:
        yield "a message is not completed"


def _compare_response(played: Played) -> Iterator[str]:
    body = played.body
    deltas = "".join(data["text"] for data in played.data("message.delta"))
    if not body["response"] == deltas == "\n\n".join(message["text"] for message in body["messages"]):
        yield f"response {body['response']!r}, deltas {deltas!r}"
    completed = played.data("message.completed")
    events = [{name: data[name] for name in ("text", "citations")} for data in completed]
    if events != [{name: message[name] for name in ("text", "citations")} for message in body["messages"]]:
        yield f"message.completed {events} and messages {body['messages']}"
    spans = [body["response"][c["start"] : c["end"]] for c in body["citations"]]
    expected_spans = [m["text"][c["start"] : c["end"]] for m in body["messages"] for c in m["citations"]]
    if spans != expected_spans:
        yield f"citations {body['citations']}"


def _compare_calls(blocks: Blocks, played: Played, *, has_ids: bool) -> Iterator[str]:
    started = {data["call_id"]: data for data in played.data("tool.started")}
    completed = {data["call_id"]: data for data in played.data("tool.completed")}
    steps = {step["call_id"]: step for step in played.steps if step["kind"] == "tool_call"}
    calls = blocks.calls if has_ids else dict(zip(started, blocks.calls.values(), strict=False))
    results = blocks.results if has_ids else {call_id: blocks.results.get(str(n)) for n, call_id in enumerate(started)}
    for call_id, (values, outcome) in calls.items():
        if call_id not in started or call_id not in completed:
            if outcome != "not_run" and played.outcome.status == "completed":
                yield f"call {call_id}: {started.get(call_id)}, {completed.get(call_id)}"
            continue
        arguments = completed[call_id].get("arguments") or started[call_id]["arguments"]
        for label, known in (("events", arguments), ("step", steps[call_id]["arguments"])):
            leaves = [known, *_leaves(known)]
            if isinstance(known, str) and known.startswith("{"):
                leaves += list(_leaves(json.loads(known)))
            if missing := [value for value in values if value not in leaves]:
                yield f"call {call_id}: {label} lack {missing} in {known}"
        outcomes = {completed[call_id]["outcome"], steps[call_id]["outcome"]}
        if outcomes != {outcome}:
            yield f"call {call_id}: {outcomes} and not {outcome}"
        texts = results.get(call_id) or [""]
        for label, known in (("events", completed[call_id]["result"]), ("step", steps[call_id]["result"])):
            if not any(text in known or json.dumps(text, ensure_ascii=False)[1:-1] in known for text in texts):
                yield f"call {call_id}: {label} lack {texts} in {known!r}"


# What a later request has of a stream, item by item.


def plain_item(item: Json) -> Json:
    """Write an item in one form: typed, its text in parts, without what is optional in an accepted request.

    Optional, each seen left out or different in accepted requests: ids and status of messages, calls and outputs where
    the recorded client left them out, ``annotations`` and ``logprobs``, fields that are null.
    """
    item = without_nulls(item)
    item.setdefault("type", "message")
    if item["type"] == "message":
        text_type = "output_text" if item["role"] == "assistant" else "input_text"
        parts = item["content"] if isinstance(item["content"], list) else [{"type": text_type, "text": item["content"]}]
        item["content"] = [{"type": part["type"], "text": part["text"]} for part in parts]
    return item


def without_nulls(value: Any) -> Any:
    """Leave out what is null, at every level."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def items_to_send(kind: str, events: Sequence[Any]) -> list[Json]:
    """Read what the service takes back of a stream: everything, but what it cannot know or refuses."""
    match kind:
        case "openai-responses":
            return [_without_refused(plain_item(item)) for item in responses_items(events) if _is_known(item)]
        case "anthropic":
            blocks = [block for block in anthropic_blocks(events) if block["type"] != "text" or block["text"].strip()]
            ids = [block[name] for block in blocks for name in ("id", "tool_use_id") if name in block]
            return [block for block in blocks if not (_is_hosted(block) and ids.count(_call_id(block)) == 1)]
        case _:
            chunks = [chunk["candidates"][0] for chunk in events if chunk.get("candidates")]
            parts = [part for candidate in chunks for part in (candidate.get("content") or {}).get("parts") or ()]
            return [part for part in accepted_parts(plain(parts)) if "functionCall" not in part]


def sent_items(kind: str, body: Json) -> list[Json]:
    """Read what a request has of the answer before; without results of open calls, and calls of Gemini."""
    match kind:
        case "openai-responses":
            return [plain_item(item) for item in body["input"][1:-1] if _is_known(item)]
        case "anthropic":
            answers = [message["content"] for message in body["messages"] if message["role"] == "assistant"]
            return [block for content in answers for block in content]
        case _:
            contents = [content for content in plain(body["contents"]) if content["role"] == "model"]
            return [part for content in contents for part in content["parts"] if "functionCall" not in part]


def _is_known(item: Json) -> bool:
    return item.get("type") != "reasoning" or bool(item.get("encrypted_content"))


def _without_refused(item: Json) -> Json:
    """Leave out the outputs of code, and sources of searches without a URL."""
    action = dict(item.get("action") or {})
    if any(source["type"] != "url" for source in action.get("sources") or ()):
        item["action"] = {name: value for name, value in action.items() if name != "sources"}
    return {name: value for name, value in item.items() if name != "outputs"}


def _is_hosted(block: Json) -> bool:
    return block["type"].endswith("_tool_result") or block["type"] in {"server_tool_use", "mcp_tool_use"}


def _call_id(block: Json) -> str:
    return block.get("tool_use_id") or block["id"]


# The same stream in other fragments.

_TEXTS: dict[str, list[tuple[str | int, ...]]] = {
    "openai-responses": [("delta",)],
    "anthropic": [("delta", name) for name in ("text", "thinking", "partial_json")],
    "gemini": [("candidates", 0, "content", "parts", 0, "text")],
    "chat-completions": [("choices", 0, "delta", name) for name in ("content", "reasoning_content", "reasoning")],
    "azure-ai-agents": [],
}
"""Where the events of a stream have a fragment of a text."""
_WHOLE = {"finishReason", "groundingMetadata", "thoughtSignature", "usage", "annotations"}
"""What an event has once."""


def cut_in_two(kind: str, events: Sequence[Any]) -> list[Any]:
    """Cut each fragment of a text in the middle."""
    fragments: list[Any] = []
    for event in events:
        halves = [fragment for path in _TEXTS[kind] for fragment in _halves(event, path)]
        is_fragment = len(halves) == 2 and not any(f'"{name}": ' in json.dumps(event) for name in _WHOLE)
        fragments += halves if is_fragment else [event]
    return fragments


def _halves(event: Any, path: Sequence[Any]) -> Iterator[Any]:
    try:
        text = reduce(getitem, path, event)
    except (KeyError, IndexError, TypeError):
        return
    if isinstance(text, str) and len(text) > 1:
        for half in (text[: len(text) // 2], text[len(text) // 2 :]):
            copy = deepcopy(event)
            reduce(getitem, path[:-1], copy)[path[-1]] = half
            yield copy
