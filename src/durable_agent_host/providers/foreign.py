"""Prepares a conversation that another provider began for the one that continues it. Pure.

Theory of operation. Output of a provider's service is stamped with the provider's name (`providers.stamps`); unstamped
contents of a turn belong to the provider that stamped the rest of the turn. Own blocks stay unchanged. Of others,
texts, calls of the app's tools and their results stay as neutral contents, the service's own tool runs are described in
words, media are moved to the user, and reasoning is left out: it is sealed for its own service. The record keeps all of
it, so the first provider finds its own blocks when the conversation returns to it.
"""

import copy
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.codec.result_text import result_text
from durable_agent_host.loops.giving_way import resting
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.provider_item import OWNER, PART_OF, STAMP
from durable_agent_host.providers.foreign_words import in_words, media_in

ANY_CALL_ID: Final = re.compile(r".{1,64}", re.DOTALL)
"""Call ids of services that document no format."""

TOOLS_OF_SERVICES: Final = frozenset(
    f"{tool}_{what}"
    for tool in ("code_interpreter_tool", "shell_tool", "search_tool", "mcp_server_tool", "image_generation_tool")
    for what in ("call", "result")
) | {"hosted_vector_store"}
"""Contents of tools run by services, which most clients can send only as their own blocks."""

IMAGES: Final = re.compile(r"image/(png|jpeg|gif|webp)")
"""Media that every service with vision accepts."""

_APPROVALS: Final = frozenset({"function_approval_request", "function_approval_response"})


@dataclass(frozen=True)
class ReplayTarget:
    """What the continuing provider can be sent.

    Attributes:
        provider: its name in its stamps; empty when it has none.
        unsent: types of contents that its client omits or refuses when they lack its stamp.
        call_ids: the format of call ids that its service accepts.
        media: the kinds of images and other files that its service accepts from a user.
    """

    provider: str = ""
    unsent: frozenset[str] = frozenset()
    call_ids: re.Pattern[str] = ANY_CALL_ID
    media: re.Pattern[str] = IMAGES


def retold(messages: Sequence[Message], target: ReplayTarget) -> list[Message]:
    """Prepare a conversation for a provider that may not have begun it.

    Guarantee: pure; the given messages are not changed; doing it again changes nothing.

    Args:
        messages: rehydrated, in order, from the start of the conversation.
        target: the provider that continues.

    Returns:
        The same messages where all is the target's own, otherwise copies.
    """
    ids = _CallIds(target)
    told: list[Message] = []
    waiting: list[Message] = []
    for message, owner in zip(resting(messages), _owners(messages), strict=True):
        if waiting and message.role != "tool":  # nothing comes between a call and its result
            told += waiting
            waiting = []
        mine, after = _Telling(message, owner, target, ids).messages()
        told += mine
        waiting += after
    return told + waiting


def _owners(messages: Sequence[Message]) -> list[str | None]:
    """Return for each message the provider that stamped something in its turn, or None."""
    owners: list[str | None] = []
    for turn in _turns(messages):
        named = (name for message in turn for content in message.contents if (name := _owner(content)))
        owner = next(named, None)
        owners += [owner] * len(turn)
    return owners


def _turns(messages: Sequence[Message]) -> Iterator[list[Message]]:
    turn: list[Message] = []
    for message in resting(messages):
        if message.role == "user" and turn:
            yield turn
            turn = []
        turn.append(message)
    if turn:
        yield turn


def _owner(content: Content) -> str | None:
    """Return the provider that a content names."""
    mark = content.additional_properties.get(STAMP)
    # The framework copies the properties of a function's call to its result.
    if isinstance(mark, dict) and content.type != "function_result":
        return str(cast("dict[str, Any]", mark).get("provider"))
    return content.additional_properties.get(OWNER)


class _CallIds:
    """Gives calls ids that the target accepts, each foreign id once, and their results the same.

    Attributes:
        hosted: calls of other services' own tools that were described in words.
    """

    def __init__(self, target: ReplayTarget) -> None:
        self._target = target
        self._times: Counter[str] = Counter()
        self._open: dict[str, list[str]] = {}
        self.hosted: set[str] = set()

    def of_call(self, call_id: str | None, *, is_foreign: bool) -> str:
        """Return the id for the next call."""
        known = call_id or ""
        self._times[known] += 1
        again = is_foreign and self._times[known] > 1
        is_good = not again and self._target.call_ids.fullmatch(known) is not None
        given = known if is_good else "call_" + derived_id(known, str(self._times[known]))
        self._open.setdefault(known, []).append(given)
        return given

    def of_result(self, call_id: str | None) -> str | None:
        """Return the id of the call that a result answers, or the result's own where no call is known."""
        waiting = self._open.get(call_id or "")
        return waiting.pop(0) if waiting else call_id


@dataclass
class _Telling:
    """One message in the form for the target."""

    message: Message
    owner: str | None
    target: ReplayTarget
    ids: _CallIds
    contents: list[Content] = field(default_factory=list[Content])
    shown: list[Content] = field(default_factory=list[Content])
    said: list[Content] = field(default_factory=list[Content])
    is_changed: bool = False

    def messages(self) -> tuple[list[Message], list[Message]]:
        """Return the message's replacement, and what must wait until the calls before it have their results."""
        owner = self.owner
        for content in self.message.contents:
            if (name := _owner(content)) is not None:
                owner = name
            elif PART_OF not in content.additional_properties:
                owner = self.owner
            self._take(content, owner)
        if not self.is_changed:
            return [self.message], []
        kept: list[Message] = []
        if self.contents:
            changed = copy.copy(self.message)
            changed.contents = self.contents
            kept.append(changed)
        after = [
            Message(role, contents) for role, contents in (("assistant", self.said), ("user", self.shown)) if contents
        ]
        return kept, after

    def _take(self, content: Content, owner: str | None) -> None:
        is_own = bool(owner) and owner == self.target.provider
        is_foreign = owner is not None and not is_own
        if _is_of_the_app(content, self.ids.hosted, is_foreign=is_foreign):
            self._take_function(content, is_own=is_own, is_foreign=is_foreign)
        elif is_own or not (is_foreign or content.type in self.target.unsent):
            self.contents.append(content)
        else:
            self._tell(content)

    def _take_function(self, content: Content, *, is_own: bool, is_foreign: bool) -> None:
        is_call = content.type == "function_call"
        if content.type in _APPROVALS or (is_own and is_call):
            given = content.call_id
        elif is_call:
            given = self.ids.of_call(content.call_id, is_foreign=is_foreign)
        else:
            given = self.ids.of_result(content.call_id)
        if given == content.call_id and not is_foreign:
            self.contents.append(content)
            return
        changed = copy.copy(content)
        changed.call_id = given
        changed.additional_properties = {} if is_foreign else dict(content.additional_properties)
        self.contents.append(changed)
        self.is_changed = True

    def _tell(self, content: Content) -> None:
        """Describe a content in words, and show its media."""
        self.is_changed = True
        if content.type == "function_call":
            self.ids.hosted.add(content.call_id or "")
        text = in_words(content)
        words = [Content.from_text(text)] if text.strip() else []
        media = [self._media(one) for one in media_in(content)]
        if self.message.role == "user":
            self.contents += [*words, *media]
            return
        (self.said if self.message.role == "tool" else self.contents).extend(words)
        self.shown += media

    def _media(self, content: Content) -> Content:
        """Return an image or a file as the user's, or its name where the service does not accept its kind."""
        if self.target.media.fullmatch((content.media_type or "").partition(";")[0]) is None:
            return Content.from_text(result_text(content))
        changed = copy.copy(content)
        changed.additional_properties = {}
        return changed


def _is_of_the_app(content: Content, hosted: set[str], *, is_foreign: bool) -> bool:
    """Return whether a content is a call of the app's tools, its result, or its approval."""
    if content.type == "function_call":
        return not (is_foreign and (content.informational_only or content.hosted))
    if content.type == "function_result":
        return (content.call_id or "") not in hosted
    return content.type in _APPROVALS and not (content.function_call and content.function_call.hosted)
