"""What a model's service has lost of a conversation or can no longer read; it is not sent again.

A container in which code ran expires; encrypted reasoning cannot be read after a change of the key, the project or the
endpoint. Both are known after the service has rejected them, and are stored with the session: expired containers by
their names, unreadable payloads by the fingerprint of the last one, as all before it are unreadable, too.
"""

import copy
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent_framework import Content, Message

from durable_agent_host.model.provider_item import LostState

_EXPIRED: Final = "expired_containers"
_UNREADABLE: Final = "unreadable_until"


@dataclass(frozen=True)
class LossRules:
    """What a service can lose.

    Attributes:
        payloads: the encrypted payloads of a content, or names of them.
        containers: the containers that contents name, for a loss without a name.
        change: a content, and whether it has an unreadable payload → the content to send; called for contents with such
            a payload or an expired container.
    """

    payloads: Callable[[Content], Sequence[str]] = lambda _content: ()
    containers: Callable[[Sequence[Content]], Sequence[str]] = lambda _contents: ()
    change: Callable[[Content, bool], Content] = lambda content, _is_unreadable: content


def apply_losses(
    messages: Sequence[Message],
    stored_losses: Mapping[str, Any],
    new_losses: Iterable[LostState],
    rules: LossRules,
) -> tuple[list[Message], dict[str, Any]]:
    """Change the contents that can no longer be sent.

    Args:
        messages: the conversation.
        stored_losses: this function's previous result.
        new_losses: what the service has rejected since.
        rules: of the service.

    Returns:
        The messages, with copies of the changed ones, and the losses to store with the session.
    """
    contents = [content for message in messages for content in message.contents]
    all_payloads = [payload for content in contents for payload in rules.payloads(content)]
    expired_containers = list[str](stored_losses.get(_EXPIRED) or ())
    last_unreadable: Any = stored_losses.get(_UNREADABLE)
    for loss in new_losses:
        if loss.kind == "container":
            expired_containers += [loss.name] if loss.name else rules.containers(contents)
        elif loss.kind == "reasoning" and all_payloads:
            last_unreadable = _fingerprint(all_payloads[-1])
    if not expired_containers and not last_unreadable:
        return list(messages), dict(stored_losses)
    unreadable_count = _count_unreadable(all_payloads, last_unreadable)
    changed_messages: list[Message] = []
    for message in messages:
        changed_contents: list[Content] = []
        for content in message.contents:
            payload_count = len(rules.payloads(content))
            is_unreadable = payload_count > 0 and unreadable_count > 0
            is_expired = content.additional_properties.get("container_id") in expired_containers
            unreadable_count -= payload_count
            changed_contents.append(rules.change(content, is_unreadable) if is_unreadable or is_expired else content)
        changed_messages.append(with_contents(message, changed_contents))
    losses = {_EXPIRED: list(dict.fromkeys(expired_containers)), _UNREADABLE: last_unreadable}
    return changed_messages, {**stored_losses, **{name: value for name, value in losses.items() if value}}


def with_contents(message: Message, contents: list[Content]) -> Message:
    """Return a copy of a message with other contents."""
    clone = copy.copy(message)
    clone.contents = contents
    return clone


def _count_unreadable(payloads: Sequence[str], last_unreadable: Any) -> int:
    names = [_fingerprint(payload) for payload in payloads] if last_unreadable else []
    return len(names) - names[::-1].index(last_unreadable) if last_unreadable in names else 0


def _fingerprint(payload: str) -> str:
    return hashlib.sha256(payload.encode("utf-8", "surrogatepass")).hexdigest()[:24]
