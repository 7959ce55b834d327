"""A conversation as the service stores it; appending costs only the appended items, regardless of its length.

Theory: a transcript is a prefix of a list that it shares with its continuations; each item is examined once, when it is
added. Of two continuations of the same transcript, the second one gets its own list.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Final, overload

from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import get_item_type

CALLS: Final = {
    "function_call": "function call",
    "custom_tool_call": "custom tool call",
    "apply_patch_call": "apply patch call",
    "computer_call": "computer call",
    "local_shell_call": "local shell call",
    "shell_call": "shell call",
}
"""Type of a call of the app's tools → its name in error messages; the type of its output has the suffix ``_output``."""

APPROVAL_REQUEST: Final = "mcp_approval_request"

RequestId = tuple[str, str]
"""Type and id of a tool call or approval request."""


def get_request_id(item: Json) -> RequestId | None:
    """Return the id of a call of the app's tools or of an approval request; None for any other item."""
    kind = get_item_type(item)
    if kind in CALLS:
        return kind, str(item.get("call_id"))
    return (kind, str(item.get("id"))) if kind == APPROVAL_REQUEST else None


def request_id_of_result(item: Json) -> RequestId | None:
    """Return the id of the call or request that this item completes; None for any other item."""
    kind = get_item_type(item)
    call, output, _ = kind.partition("_output")
    if call in CALLS and output:
        return call, str(item.get("call_id"))
    return (APPROVAL_REQUEST, str(item.get("approval_request_id"))) if kind == "mcp_approval_response" else None


class Transcript(Sequence[Json]):
    """Items of a conversation, oldest first; immutable.

    Attributes:
        open: calls and approval requests without a result, oldest first.
        characters: length of the items as JSON.
    """

    def __init__(self, items: Iterable[Json] = ()) -> None:
        self._shared_items: list[Json] = []
        self._count = 0
        self.open: tuple[RequestId, ...] = ()
        self.characters = 0
        self._add(items)

    def with_items(self, items: Iterable[Json]) -> "Transcript":
        """Return this transcript with further items."""
        transcript = Transcript()
        has_other_continuation = len(self._shared_items) > self._count
        transcript._shared_items = self[:] if has_other_continuation else self._shared_items
        transcript.open = self.open
        transcript.characters = self.characters
        transcript._add(items)
        return transcript

    def _add(self, items: Iterable[Json]) -> None:
        open_requests = list(self.open)
        for item in items:
            self._shared_items.append(item)
            self.characters += len(json.dumps(item)) + 2
            request_id = get_request_id(item)
            result_request_id = request_id_of_result(item)
            if request_id:
                open_requests.append(request_id)
            if result_request_id in open_requests:
                open_requests.remove(result_request_id)
        self.open = tuple(open_requests)
        self._count = len(self._shared_items)

    def has_id(self, item_id: object) -> bool:
        return any(item.get("id") == item_id for item in self)

    def has_result(self, request_id: RequestId) -> bool:
        """Return whether a call or request has a result."""
        return any(request_id_of_result(item) == request_id for item in self)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Json: ...

    @overload
    def __getitem__(self, index: slice) -> list[Json]: ...

    def __getitem__(self, index: int | slice) -> Json | list[Json]:
        if isinstance(index, slice):
            return [self._shared_items[n] for n in range(*index.indices(self._count))]
        return self._shared_items[range(self._count)[index]]
