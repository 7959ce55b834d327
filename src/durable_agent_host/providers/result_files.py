"""Files in the results of tools: those that a service takes reach the model, and it is told of the others in text."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from agent_framework import Content, Message

from durable_agent_host.codec.tool_result_text import file_text
from durable_agent_host.model.provider_item import LostState
from durable_agent_host.providers.lost_state import fingerprint, with_contents

_FILES: Final = frozenset({"data", "uri", "hosted_file"})
_REJECTED_FILES: Final = "rejected_files"

AcceptsFile = Callable[[Content], bool]


def move_result_files(
    messages: Iterable[Message], accepts_in_result: AcceptsFile, accepts_in_message: AcceptsFile, *, role: str = "user"
) -> list[Message]:
    """Move the files of results to where the service takes them.

    Args:
        messages: of a request.
        accepts_in_result: whether the service takes a file in the result of a call.
        accepts_in_message: whether it takes it in a message behind the results.
        role: of that message.

    Returns:
        The messages, copies where a file is not in its result any more: a text in the result names it.
    """
    moved_messages: list[Message] = []
    files: list[Content] = []

    def replace_files(result: Content) -> Content:
        if result.type != "function_result" or all(
            item.type not in _FILES or accepts_in_result(item) for item in result.items or ()
        ):
            return result
        items: list[Content] = []
        for item in result.items or ():
            if item.type not in _FILES or accepts_in_result(item):
                items.append(item)
                continue
            is_sent = accepts_in_message(item)
            items.append(Content.from_text(_mention(item, "in the next message") if is_sent else without_file(item)))
            files.extend([item] if is_sent else [])
        return with_items(result, items)

    for message in messages:
        if message.role != "tool" and files:
            moved_messages.append(_build_message(files, role))
            files = []
        contents = [replace_files(content) for content in message.contents]
        moved_messages.append(message if contents == list(message.contents) else with_contents(message, contents))
    return [*moved_messages, _build_message(files, role)] if files else moved_messages


def without_file(file: Content) -> str:
    """Return what the model is told in place of a file that its service does not take."""
    return _mention(file, "not sent: this model's service does not take it here")


def _mention(file: Content, where: str) -> str:
    return f"[file: {file_text(file)}; {where}]"


def with_items(result: Content, items: list[Content]) -> Content:
    """Return a copy of a tool's result with other items, and their text as its result, as the framework has it."""
    clone = copy.copy(result)
    clone.items = items
    clone.result = "\n".join(item.text for item in items if item.type == "text" and item.text)
    return clone


def _build_message(files: Sequence[Content], role: str) -> Message:
    names = "; ".join(map(file_text, files))
    return Message(role, [Content.from_text(f"[files that the tools returned: {names}]"), *files])


def omit_rejected_files(
    messages: Sequence[Message], stored_losses: Mapping[str, Any], new_losses: Iterable[LostState]
) -> tuple[list[Message], dict[str, Any]]:
    """Replace the files that the service has refused by texts, and return what to store of it with the session.

    What a request had in addition to the one before is refused: the files of the tools that have just returned. Without
    such files, it is those of earlier turns: the URL of a file may have expired. A file of the new message is sent.
    """
    names = list[str](stored_losses.get(_REJECTED_FILES) or ())
    if any(loss.kind == "files" for loss in new_losses):
        end = max((index for index, message in enumerate(messages, 1) if message.role == "assistant"), default=0)
        new_files = [file for message in messages[end:] for file in _files(message) if message.role == "tool"]
        earlier_files = (file for message in messages[:end] for file in _files(message))
        names += [_name(file) for file in new_files or earlier_files]
    if not names:
        return list(messages), dict(stored_losses)

    def accepts(content: Content) -> bool:
        return content.type not in _FILES or _name(content) not in names

    sent_messages = [
        message
        if message.role == "assistant"
        else with_contents(
            message,
            [content if accepts(content) else Content.from_text(without_file(content)) for content in message.contents],
        )
        for message in move_result_files(messages, accepts, lambda _file: False)
    ]
    return sent_messages, {**stored_losses, _REJECTED_FILES: list(dict.fromkeys(names))}


def _files(message: Message) -> list[Content]:
    if message.role == "assistant":
        return []
    items = [item for content in message.contents for item in (content, *(content.items or ()))]
    return [item for item in items if item.type in _FILES]


def _name(file: Content) -> str:
    return fingerprint(file.uri or file.file_id or "")
