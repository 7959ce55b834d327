"""Files in the results of tools: those that a service takes reach the model, and it is told of the others in text."""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from agent_framework import Content, Message

from durable_agent_host.codec.tool_result_text import file_text
from durable_agent_host.providers.lost_state import with_contents

_FILES: Final = frozenset({"data", "uri", "hosted_file"})

TakesFile = Callable[[Content], bool]


def move_result_files(
    messages: Iterable[Message], accepts_in_result: TakesFile, accepts_in_message: TakesFile, *, role: str = "user"
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
            where = "in the next message" if is_sent else "not sent: this model's service does not take it here"
            items.append(Content.from_text(f"[file: {file_text(item)}; {where}]"))
            files.extend([item] if is_sent else [])
        clone = copy.copy(result)
        clone.items = items
        clone.result = "\n".join(item.text for item in items if item.type == "text" and item.text)  # as the framework
        return clone

    for message in messages:
        if message.role != "tool" and files:
            moved_messages.append(_build_message(files, role))
            files = []
        contents = [replace_files(content) for content in message.contents]
        moved_messages.append(message if contents == list(message.contents) else with_contents(message, contents))
    return [*moved_messages, _build_message(files, role)] if files else moved_messages


def _build_message(files: Sequence[Content], role: str) -> Message:
    names = "; ".join(map(file_text, files))
    return Message(role, [Content.from_text(f"[files that the tools returned: {names}]"), *files])
