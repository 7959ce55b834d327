"""What the server has issued: responses, their items, containers and conversations; in memory.

It implements `Knowledge` for the rules, and holds the transcripts that `previous_response_id` and `conversation`
continue.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from practice_model.dialects.responses import sealed
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import kind_of
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
    stored: bool
    reasoning_id: str | None = None
    follower: Json | None = None


CONTAINER_IDLE_SECONDS = 20 * 60
"""Containers stop after about twenty idle minutes on the live service."""


@dataclass
class Store:
    """Everything issued since the start of the process."""

    responses: dict[str, StoredResponse] = field(default_factory=dict[str, StoredResponse])
    issued: dict[str, IssuedItem] = field(default_factory=dict[str, IssuedItem])
    known_encrypted: set[str] = field(default_factory=set[str])
    foreign_encrypted: set[str] = field(default_factory=set[str])
    conversations: dict[str, Transcript] = field(default_factory=dict[str, Transcript])
    containers: dict[str, float] = field(default_factory=dict[str, float])
    files: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])

    def remember(
        self, response: Json, *, stored: bool, transcript: Sequence[Json], events: Sequence[Json], now: float
    ) -> None:
        """Record a response and its items as issued; with `stored`, later requests can refer to them.

        Args:
            response: the final response object.
            stored: whether the request left `store` on.
            transcript: that the model read, without the output.
            events: the stream, for a later replay.
            now: seconds; recorded as the last use of its containers.
        """
        output: list[Json] = response["output"]
        if stored:
            known = transcript if isinstance(transcript, Transcript) else Transcript(transcript)
            kept = known.continued(output)
            self.responses[response["id"]] = StoredResponse(response, kept, events)
            conversation: Any = response.get("conversation")
            if conversation:
                self.conversations[conversation["id"]] = kept
        self._issue(output, stored=stored)
        for item in output:
            if kind_of(item) == "code_interpreter_call":
                self.containers[item["container_id"]] = now
            for part in item.get("content") or () if kind_of(item) == "message" else ():
                for cited in part.get("annotations") or ():
                    if cited.get("type") == "container_file_citation":
                        self.files[cited["file_id"]] = (cited["container_id"], cited["filename"])

    def _issue(self, output: Sequence[Json], *, stored: bool) -> None:
        reasoning_id: str | None = None
        for place, item in enumerate(output):
            item_id = str(item.get("id") or "")
            self.know_encrypted([item.get("encrypted_content")])
            if kind_of(item) == "reasoning":
                follower = output[place + 1] if place + 1 < len(output) else None
                self.issued[item_id] = IssuedItem(item, stored, follower=follower)
                reasoning_id = item_id
            else:
                self.issued[item_id] = IssuedItem(item, stored, reasoning_id=reasoning_id)

    def know_encrypted(self, values: Iterable[Any]) -> None:
        """Accept these values, such as those of recordings."""
        self.known_encrypted.update(value for value in values if isinstance(value, str))

    def transcript_of(self, response_id: str) -> Transcript | None:
        """Return the transcript up to and including this response; None if it is not stored."""
        found = self.responses.get(response_id)
        return found.transcript if found else None

    def conversation(self, conversation_id: str) -> Transcript | None:
        """Return the items of a conversation; None if it is unknown."""
        return self.conversations.get(conversation_id)

    def issued_item(self, item_id: str) -> IssuedItem | None:
        """Return the item issued under this id."""
        return self.issued.get(item_id)

    def is_good_encrypted(self, value: str) -> bool:
        """Return whether an encrypted value was issued here or is known from a recording."""
        return value not in self.foreign_encrypted and (value in self.known_encrypted or sealed.is_sealed(value))

    def container_is_expired(self, container_id: str, now: float) -> bool:
        """Return whether a container of this server has expired; unknown containers never do."""
        used = self.containers.get(container_id)
        return used is not None and now - used > CONTAINER_IDLE_SECONDS

    def file_of_container(self, container_id: str, file_id: str, now: float) -> str | None:
        """Return the name of a file that code has written; None when it or its container is gone."""
        container, name = self.files.get(file_id, ("", ""))
        is_there = container == container_id and not self.container_is_expired(container_id, now)
        return name if is_there else None

    def expire_containers(self) -> int:
        """Expire all containers; return their number."""
        self.containers = dict.fromkeys(self.containers, float("-inf"))
        return len(self.containers)

    def expire_encrypted(self) -> int:
        """Reject all earlier encrypted values; return their number."""
        self.foreign_encrypted |= self.known_encrypted
        return len(self.foreign_encrypted)

    def forget(self, response_id: str) -> bool:
        """Delete a stored response; return whether it existed."""
        return self.responses.pop(response_id, None) is not None
