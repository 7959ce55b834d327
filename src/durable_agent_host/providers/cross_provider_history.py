"""Prepares a conversation with another provider's messages for the provider that continues it.

Theory of operation. Output of a provider's service has item metadata with the provider's name
(`providers.item_metadata`); contents without metadata belong to the provider of the other contents of the turn. The
target's own blocks stay unchanged. Of others, texts, calls of the app's tools and their results stay as neutral
contents, the service's own tool runs are described as text, media are moved to the user, and reasoning is omitted: it
is encrypted for its own service. The stored conversation does not change, so the first provider finds its own blocks
when the conversation returns to it.
"""

import copy
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.codec.tool_result_text import result_text, value_text
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.provider_item import OWNER, PART_OF, STAMP

_MEDIA: Final = frozenset({"data", "uri"})
_ENCRYPTED_NAMES: Final = re.compile("encrypted|signature", re.IGNORECASE)


def describe_content(content: Content) -> str:
    """Describe a content as text.

    Returns:
        The assistant's description; empty for reasoning, which is encrypted for its own service, and for media, which
        `extract_media` returns.
    """
    return _DESCRIPTIONS.get(content.type, _describe_unknown)(content)


def extract_media(content: Content) -> list[Content]:
    """List the images and other media in a content."""
    values: Any = [content] if content.type in _MEDIA else content.outputs or content.output or content.items or ()
    parts: tuple[Any, ...] = tuple(cast("Iterable[Any]", values)) if isinstance(values, list | tuple) else (values,)
    return [part for part in parts if isinstance(part, Content) and part.type in _MEDIA and part.uri]


def _describe_text(content: Content) -> str:
    text = content.text or ""
    annotations = cast("Sequence[Mapping[str, Any]]", content.annotations or ())
    sources = dict.fromkeys(source for annotation in annotations if (source := _source(annotation)))
    return f"{text}\n\nSources: {'; '.join(sources)}" if sources else text


def _source(annotation: Mapping[str, Any]) -> str:
    names = [annotation.get(name) for name in ("title", "url", "file_id")]
    unique_names = [str(name) for name in dict.fromkeys(names) if name]
    return f"{unique_names[0]} ({', '.join(unique_names[1:])})" if len(unique_names) > 1 else "".join(unique_names)


def _describe_code(content: Content) -> str:
    parts = content.inputs or []
    language = next(
        (part_language for part in parts if (part_language := part.additional_properties.get("language"))), ""
    )
    return f"I ran this code:\n```{language}\n{value_text(parts)}\n```"


def _describe_commands(content: Content) -> str:
    return "I ran these commands:\n```\n" + "\n".join(content.commands or ()) + "\n```"


def _describe_outputs(content: Content) -> str:
    code = content.additional_properties.get("exit_code")
    output_text = result_text(content) + (f"\n(exit code {code})" if code else "")
    return f"It printed:\n{output_text}" if output_text else "It printed nothing."


def _describe_call(verb: str) -> Callable[[Content], str]:
    def describe(content: Content) -> str:
        name = "/".join(label for label in (content.server_name, content.tool_name or content.name) if label)
        arguments = content.arguments if isinstance(content.arguments, str) else json.dumps(content.arguments or {})
        return f"I {verb} {name} with {arguments}"

    return describe


def _describe_result(verb: str) -> Callable[[Content], str]:
    def describe(content: Content) -> str:
        readable = copy.copy(content)
        readable.result, readable.output = _readable(content.result), _readable(content.output)
        return f"{verb}:\n{result_text(readable)}"

    return describe


def _readable(value: Any) -> Any:
    """Remove from a tool's JSON the fields that only its own service can read."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {name: _readable(element) for name, element in fields.items() if not _ENCRYPTED_NAMES.search(str(name))}
    return [_readable(element) for element in cast("list[Any]", value)] if isinstance(value, list) else value


def _describe_file(content: Content) -> str:
    return f"[file {content.name or content.file_id}, which is not at hand here]"


def _describe_vector_store(content: Content) -> str:
    return f"[vector store {content.vector_store_id}, which is not at hand here]"


def _describe_approval_request(content: Content) -> str:
    return "I asked for approval: " + (
        _describe_call("want to call")(content.function_call) if content.function_call else ""
    )


def _describe_approval_response(content: Content) -> str:
    return "Approved." if content.approved else "Not approved."


def _no_description(_content: Content) -> str:
    return ""


def _describe_unknown(content: Content) -> str:
    """Describe the readable parts of a type without a row."""
    return result_text(content) or json.dumps(_readable(content.to_dict()), ensure_ascii=False, default=str)


_DESCRIPTIONS: Final[dict[str, Callable[[Content], str]]] = {
    "text": _describe_text,
    "text_reasoning": _no_description,
    "usage": _no_description,
    "data": _no_description,
    "uri": _no_description,
    "error": result_text,
    "hosted_file": _describe_file,
    "hosted_vector_store": _describe_vector_store,
    "code_interpreter_tool_call": _describe_code,
    "code_interpreter_tool_result": _describe_outputs,
    "shell_tool_call": _describe_commands,
    "shell_tool_result": _describe_outputs,
    "search_tool_call": _describe_call("searched by"),
    "search_tool_result": _describe_result("I found"),
    "mcp_server_tool_call": _describe_call("called"),
    "mcp_server_tool_result": _describe_result("It gave"),
    "image_generation_tool_call": _no_description,
    "image_generation_tool_result": lambda _content: "I made this image.",
    "function_call": _describe_call("used"),
    "function_result": _describe_result("It gave"),
    "function_approval_request": _describe_approval_request,
    "function_approval_response": _describe_approval_response,
}
"""Type of a content → its description, in the assistant's words."""


def as_neutral(content: Content, unsent: frozenset[str]) -> Content:
    """Return a content without its item, which it no longer is; as a text if the client would leave it out."""
    if content.type in unsent:
        return Content.from_text(describe_content(content))
    if content.additional_properties.keys().isdisjoint((STAMP, PART_OF)):
        return content
    clone = copy.copy(content)
    properties = content.additional_properties.items()
    clone.additional_properties = {name: value for name, value in properties if name not in (STAMP, PART_OF)}
    clone.protected_data = None  # it signs the text that there was
    return clone


ANY_CALL_ID: Final = re.compile(r".{1,64}", re.DOTALL)
"""Call ids of services that document no format."""

TOOLS_OF_SERVICES: Final = frozenset(
    f"{tool}_{suffix}"
    for tool in ("code_interpreter_tool", "shell_tool", "search_tool", "mcp_server_tool", "image_generation_tool")
    for suffix in ("call", "result")
) | {"hosted_vector_store"}
"""Contents of tools run by services, which most clients can send only as their own blocks."""

IMAGES: Final = re.compile(r"image/(png|jpeg|gif|webp)")
"""Media that every service with vision accepts."""

_APPROVALS: Final = frozenset({"function_approval_request", "function_approval_response"})


@dataclass(frozen=True)
class ReplayTarget:
    """What the continuing provider can be sent.

    Attributes:
        provider: its name in item metadata; empty when it has none.
        unsent: types of contents that its client omits or rejects when they lack its metadata.
        call_ids: the format of call ids that its service accepts.
        media: the kinds of images and other files that its service accepts from a user.
    """

    provider: str = ""
    unsent: frozenset[str] = frozenset()
    call_ids: re.Pattern[str] = ANY_CALL_ID
    media: re.Pattern[str] = IMAGES


def rewrite_for(messages: Sequence[Message], target: ReplayTarget) -> list[Message]:
    """Prepare a conversation for a provider that may not have started it.

    Returns:
        The same messages if all contents are the target's own, otherwise copies.
    """
    ids = _CallIds(target)
    rewritten_messages: list[Message] = []
    deferred_messages: list[Message] = []
    for message, owner in zip(messages, _owners(messages), strict=True):
        if deferred_messages and message.role != "tool":  # nothing comes between a call and its result
            rewritten_messages += deferred_messages
            deferred_messages = []
        replacements, later_messages = _MessageRewriter(message, owner, target, ids).messages()
        rewritten_messages += replacements
        deferred_messages += later_messages
    return rewritten_messages + deferred_messages


def _owners(messages: Sequence[Message]) -> list[str | None]:
    """Return for each message the provider of its turn, or None."""
    owners: list[str | None] = []
    for turn in _turns(messages):
        owner_names = (name for message in turn for content in message.contents if (name := _owner(content)))
        owner = next(owner_names, None)
        owners += [owner] * len(turn)
    return owners


def _turns(messages: Sequence[Message]) -> Iterator[list[Message]]:
    turn: list[Message] = []
    for message in messages:
        if message.role == "user" and turn:
            yield turn
            turn = []
        turn.append(message)
    if turn:
        yield turn


def _owner(content: Content) -> str | None:
    """Return the provider that a content names."""
    metadata = content.additional_properties.get(STAMP)
    # The framework copies the properties of a function's call to its result.
    if isinstance(metadata, dict) and content.type != "function_result":
        return str(cast("dict[str, Any]", metadata).get("provider"))
    return content.additional_properties.get(OWNER)


class _CallIds:
    """Gives calls ids that the target accepts, each foreign id once, and their results the same."""

    def __init__(self, target: ReplayTarget) -> None:
        self._target = target
        self._counts: Counter[str] = Counter()
        self._open: dict[str, list[str]] = {}
        self.hosted_call_ids: set[str] = set()

    def assign_id(self, call_id: str | None, *, is_foreign: bool) -> str:
        """Return the id for the next call."""
        source_id = call_id or ""
        self._counts[source_id] += 1
        is_repeated = is_foreign and self._counts[source_id] > 1
        is_valid = not is_repeated and self._target.call_ids.fullmatch(source_id) is not None
        sent_id = source_id if is_valid else "call_" + derived_id(source_id, str(self._counts[source_id]))
        self._open.setdefault(source_id, []).append(sent_id)
        return sent_id

    def resolve_id(self, call_id: str | None) -> str | None:
        """Return the id of the call that a result belongs to, or the result's own without such a call."""
        pending_ids = self._open.get(call_id or "")
        return pending_ids.pop(0) if pending_ids else call_id


@dataclass
class _MessageRewriter:
    """One message in the form for the target."""

    message: Message
    owner: str | None
    target: ReplayTarget
    ids: _CallIds
    contents: list[Content] = field(default_factory=list[Content])
    user_contents: list[Content] = field(default_factory=list[Content])
    assistant_contents: list[Content] = field(default_factory=list[Content])
    is_changed: bool = False

    def messages(self) -> tuple[list[Message], list[Message]]:
        """Return the message's replacement, and the messages that must follow the results of its calls."""
        owner = self.owner
        for content in self.message.contents:
            if (name := _owner(content)) is not None:
                owner = name
            elif PART_OF not in content.additional_properties:
                owner = self.owner
            self._add_content(content, owner)
        if not self.is_changed:
            return [self.message], []
        replacements: list[Message] = []
        if self.contents:
            clone = copy.copy(self.message)
            clone.contents = self.contents
            replacements.append(clone)
        later_messages = [
            Message(role, contents)
            for role, contents in (("assistant", self.assistant_contents), ("user", self.user_contents))
            if contents
        ]
        return replacements, later_messages

    def _add_content(self, content: Content, owner: str | None) -> None:
        is_own = bool(owner) and owner == self.target.provider
        is_foreign = owner is not None and not is_own
        if _is_app_content(content, self.ids.hosted_call_ids, is_foreign=is_foreign):
            self._add_function_content(content, is_own=is_own, is_foreign=is_foreign)
        elif is_own or not (is_foreign or content.type in self.target.unsent):
            self.contents.append(content)
        else:
            self._add_description(content)

    def _add_function_content(self, content: Content, *, is_own: bool, is_foreign: bool) -> None:
        is_call = content.type == "function_call"
        if content.type in _APPROVALS or (is_own and is_call):
            sent_id = content.call_id
        elif is_call:
            sent_id = self.ids.assign_id(content.call_id, is_foreign=is_foreign)
        else:
            sent_id = self.ids.resolve_id(content.call_id)
        if sent_id == content.call_id and not is_foreign:
            self.contents.append(content)
            return
        clone = copy.copy(content)
        clone.call_id = sent_id
        clone.additional_properties = {} if is_foreign else dict(content.additional_properties)
        self.contents.append(clone)
        self.is_changed = True

    def _add_description(self, content: Content) -> None:
        """Describe a content as text, and move its media to the user."""
        self.is_changed = True
        if content.call_id and content.type.endswith("_call"):
            self.ids.hosted_call_ids.add(content.call_id)
        text = describe_content(content)
        descriptions = [Content.from_text(text)] if text.strip() else []
        media = [self._convert_media(item) for item in extract_media(content)]
        if self.message.role == "user":
            self.contents += [*descriptions, *media]
            return
        (self.assistant_contents if self.message.role == "tool" else self.contents).extend(descriptions)
        self.user_contents += media

    def _convert_media(self, content: Content) -> Content:
        """Return an image or a file as the user's, or its name where the service does not accept its kind."""
        if self.target.media.fullmatch((content.media_type or "").partition(";")[0]) is None:
            return Content.from_text(result_text(content))
        clone = copy.copy(content)
        clone.additional_properties = {}
        return clone


def _is_app_content(content: Content, hosted_call_ids: set[str], *, is_foreign: bool) -> bool:
    """Return whether a content is a call of the app's tools, its result, or its approval."""
    if content.type == "function_call":
        return not (is_foreign and (content.informational_only or content.hosted))
    if content.type == "function_result":
        return (content.call_id or "") not in hosted_call_ids
    return content.type in _APPROVALS and not (content.function_call and content.function_call.hosted)
