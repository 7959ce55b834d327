"""A stored conversation as the service keeps it: it grows at the price of what is added, whatever its length.

Theory: a transcript is the first items of a list that it shares with its continuations, and each item is looked at
once, when it is added. Of two continuations of the same transcript, the second one gets a list of its own.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, overload

from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import kind_of

CALLS: Final = {"function_call": "function call", "custom_tool_call": "custom tool call"}
"""Type of a call of the app's tools → its name in objections; the type of its output has ``_output`` behind."""

APPROVAL_REQUEST: Final = "mcp_approval_request"

Question = tuple[str, str]
"""What an answer answers: the type of the call or request, and its id."""


def question_of(item: Json) -> Question | None:
    """Return what this item asks the app: a call of its tools, or an approval; None for any other item."""
    kind = kind_of(item)
    if kind in CALLS:
        return kind, str(item.get("call_id"))
    return (kind, str(item.get("id"))) if kind == APPROVAL_REQUEST else None


def answered_by(item: Json) -> Question | None:
    """Return what this item answers; None if it is no answer."""
    kind = kind_of(item)
    call, output, _ = kind.partition("_output")
    if call in CALLS and output:
        return call, str(item.get("call_id"))
    return (APPROVAL_REQUEST, str(item.get("approval_request_id"))) if kind == "mcp_approval_response" else None


@dataclass
class _Shared:
    items: list[Json] = field(default_factory=list[Json])
    places: dict[str, int] = field(default_factory=dict[str, int])
    answered: dict[Question, int] = field(default_factory=dict[Question, int])


class Transcript(Sequence[Json]):
    """Items of a conversation, oldest first; it never changes.

    Attributes:
        open: calls and approval requests without an answer, oldest first.
        characters: of the items as JSON.
    """

    def __init__(self, items: Iterable[Json] = ()) -> None:
        self._shared = _Shared()
        self._count = 0
        self.open: tuple[Question, ...] = ()
        self.characters = 0
        self._add(items)

    def continued(self, items: Iterable[Json]) -> "Transcript":
        """Return this transcript with further items."""
        longer = Transcript()
        longer._shared, longer._count = self._shared, self._count
        if len(self._shared.items) > self._count:  # it has another continuation
            longer._shared = _Shared(self[:], _before(self._shared.places, self), _before(self._shared.answered, self))
        longer.open, longer.characters = self.open, self.characters
        longer._add(items)
        return longer

    def _add(self, items: Iterable[Json]) -> None:
        shared, still_open = self._shared, list(self.open)
        for item in items:
            place = len(shared.items)
            shared.items.append(item)
            self.characters += len(json.dumps(item)) + 2
            if item.get("id"):
                shared.places.setdefault(str(item["id"]), place)
            question, answered = question_of(item), answered_by(item)
            if question:
                still_open.append(question)
            if answered in still_open:
                still_open.remove(answered)
                shared.answered.setdefault(answered, place)
        self.open, self._count = tuple(still_open), len(shared.items)

    def has_id(self, item_id: object) -> bool:
        """Return whether one of the items has this id."""
        return self._shared.places.get(str(item_id), self._count) < self._count

    def has_answered(self, question: Question) -> bool:
        """Return whether a call or request was answered."""
        return self._shared.answered.get(question, self._count) < self._count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Json: ...

    @overload
    def __getitem__(self, place: slice) -> list[Json]: ...

    def __getitem__(self, place: int | slice) -> Json | list[Json]:
        if isinstance(place, slice):
            return [self._shared.items[n] for n in range(*place.indices(self._count))]
        return self._shared.items[range(self._count)[place]]


def _before[Key](places: dict[Key, int], transcript: Transcript) -> dict[Key, int]:
    return {key: place for key, place in places.items() if place < len(transcript)}
