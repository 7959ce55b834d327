"""Files of a conversation: what callers sent and agents made, and where the bytes are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agent_framework import Content


@dataclass(frozen=True)
class ServiceFile:
    """A file that the model's service keeps.

    Attributes:
        file_id: the service's.
        name: as the service or the caller says, or None.
        media_type: the same.
        place: where the service has it, in the words of its provider, which alone reads them.
    """

    file_id: str
    name: str | None = None
    media_type: str | None = None
    place: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class ServedFile:
    """A file as the model's service gave it.

    Attributes:
        data: its bytes.
        name: as the service says, or None.
        media_type: the same.
    """

    data: bytes
    name: str | None = None
    media_type: str | None = None


class ServiceFileReader(Protocol):
    """Finds and reads the files that the service of an agent's chat client keeps."""

    def of(self, content: Content) -> Iterable[ServiceFile]:
        """List the files of the service to which a stored content refers."""
        ...

    async def read(self, file: ServiceFile) -> ServedFile:
        """Download a file.

        Raises:
            NotFoundError: the service does not have it, or does not give it out.
            ProviderError: the service failed.
        """
        ...


@dataclass(frozen=True)
class ConversationFile:
    """A file of a conversation.

    Attributes:
        file_id: of bytes that are stored here, their SHA-256; else the service's id.
        name: checked by nobody, or None.
        media_type: checked by nobody, or None.
        size: bytes, or None when only the service knows.
        role: who brought it: ``user``, ``assistant`` or ``tool``.
        turn_id: the turn that brought it; None for an upload that no message has used.
        piece: home and name of the piece with its bytes, or None.
        is_text: the piece is a data URL as text, and not the bytes.
        data: the bytes, when they are small and stand in the conversation itself; or None.
        service: the file of the model's service, or None.
    """

    file_id: str
    name: str | None
    media_type: str | None
    size: int | None
    role: str
    turn_id: str | None = None
    piece: tuple[str, str] | None = None
    is_text: bool = False
    data: bytes | None = None
    service: ServiceFile | None = None
