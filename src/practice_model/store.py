"""Responses, items, containers and conversations that the server has issued; in memory.

The rules read it, and `previous_response_id` and `conversation` continue its transcripts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from practice_model.dialects.responses import sealed
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import get_item_type
from practice_model.dialects.responses.transcript import Transcript


@dataclass(frozen=True)
class StoredResponse:
    """A response with the transcript that the model read, and its events."""

    response: Json
    transcript: Transcript
    events: Sequence[Json]


@dataclass(frozen=True)
class IssuedItem:
    """An issued item with its relations: `follower` of a reasoning item, `reasoning_id` of any other."""

    item: Json
    is_stored: bool
    reasoning_id: str | None = None
    follower: Json | None = None


CONTAINER_IDLE_SECONDS = 20 * 60
"""Containers stop after about twenty idle minutes on the live service."""


class Store:
    """Everything issued since the start of the process."""

    def __init__(self) -> None:
        self.responses: dict[str, StoredResponse] = {}
        self.issued_items: dict[str, IssuedItem] = {}
        self.known_encrypted: set[str] = set()
        self.foreign_encrypted: set[str] = set()
        self.conversations: dict[str, Transcript] = {}
        self.containers: dict[str, float] = {}
        self.files: dict[str, tuple[str, str]] = {}

    def record_response(
        self, response: Json, *, is_stored: bool, transcript: Sequence[Json], events: Sequence[Json], now: float
    ) -> None:
        """Record a response and its items as issued; with `is_stored`, later requests can reference them."""
        output: list[Json] = response["output"]
        if is_stored:
            input_transcript = transcript if isinstance(transcript, Transcript) else Transcript(transcript)
            transcript_with_output = input_transcript.with_items(output)
            self.responses[response["id"]] = StoredResponse(response, transcript_with_output, events)
            conversation: Any = response.get("conversation")
            if conversation:
                self.conversations[conversation["id"]] = transcript_with_output
        self._record_items(output, is_stored=is_stored)
        for item in output:
            if get_item_type(item) == "code_interpreter_call":
                self.containers[item["container_id"]] = now
            for part in item.get("content") or () if get_item_type(item) == "message" else ():
                for annotation in part.get("annotations") or ():
                    if annotation.get("type") == "container_file_citation":
                        self.files[annotation["file_id"]] = (annotation["container_id"], annotation["filename"])

    def _record_items(self, output: Sequence[Json], *, is_stored: bool) -> None:
        reasoning_id: str | None = None
        for index, item in enumerate(output):
            item_id = str(item.get("id") or "")
            self.accept_encrypted([item.get("encrypted_content")])
            if get_item_type(item) == "reasoning":
                follower = output[index + 1] if index + 1 < len(output) else None
                self.issued_items[item_id] = IssuedItem(item, is_stored, follower=follower)
                reasoning_id = item_id
            else:
                self.issued_items[item_id] = IssuedItem(item, is_stored, reasoning_id=reasoning_id)

    def accept_encrypted(self, values: Iterable[Any]) -> None:
        """Accept these values, such as those of recordings."""
        self.known_encrypted.update(value for value in values if isinstance(value, str))

    def is_genuine_encrypted(self, value: str) -> bool:
        """Return whether an encrypted value was issued here or is known from a recording."""
        return value not in self.foreign_encrypted and (value in self.known_encrypted or sealed.is_genuine(value))

    def is_container_expired(self, container_id: str, now: float) -> bool:
        """Return whether a container of this server has expired; unknown containers never do."""
        last_used_at = self.containers.get(container_id)
        return last_used_at is not None and now - last_used_at > CONTAINER_IDLE_SECONDS

    def find_container_file(self, container_id: str, file_id: str, now: float) -> str | None:
        """Return the name of a file that code has written; None if it does not exist or its container has expired."""
        container, name = self.files.get(file_id, ("", ""))
        is_available = container == container_id and not self.is_container_expired(container_id, now)
        return name if is_available else None

    def expire_containers(self) -> int:
        """Expire all containers; return their number."""
        self.containers = dict.fromkeys(self.containers, float("-inf"))
        return len(self.containers)

    def expire_encrypted(self) -> None:
        """Reject all earlier encrypted values, as a service with another key does."""
        self.foreign_encrypted |= self.known_encrypted
