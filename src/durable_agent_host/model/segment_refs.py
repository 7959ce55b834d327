"""Where the older part of a conversation is stored: references to blobs outside the session's entity."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class SegmentRef:
    """A reference to a segment, or to an index of segments.

    Attributes:
        name: of the blob: SHA-256 of its bytes, 64 hexadecimal digits.
        entries: how many entries of the conversation are below it.
        size: bytes of the JSON of the segments below it, before compression and without large contents.
        depth: 0 for a segment, 1 for an index of segments, and so on.
        turns: for a segment, short marks of its turns, see `durable_agent_host.session.sealing.turn_mark`.
        has_contents: whether entries below it refer to large contents of their own.
    """

    name: str
    entries: int
    size: int
    depth: int = 0
    turns: str = ""
    has_contents: bool = False


@dataclass(frozen=True)
class SegmentList:
    """The part of a session that is stored in blobs, all in one namespace, which has nothing else.

    Attributes:
        namespace: of the blobs; empty before the first.
        refs: the sealed entries, oldest first; deeper ones come before flatter ones.
        seen: short marks of turns whose receipts are in blobs, oldest first.
        agent_session: name of the blob with the framework's session, when it is too large for the head; else empty.
        overlay: likewise for the overlay.
    """

    namespace: str = ""
    refs: tuple[SegmentRef, ...] = ()
    seen: str = ""
    agent_session: str = ""
    overlay: str = ""

    @property
    def entries(self) -> int:
        """How many entries are sealed."""
        return sum(ref.entries for ref in self.refs)


NOTHING_SEALED: Final = SegmentList()


@dataclass(frozen=True)
class SealPlan:
    """The data that a turn's end moves out of the session's head; the session's ``commit`` applies it.

    Attributes:
        instead_of: digest of the state seen by the activity: the head's entries to seal, and the previous sealed part.
        entry_count: how many entries at the start of the head are sealed.
        receipts: short marks of the turns whose receipts leave the head, see `durable_agent_host.session.sealing`.
        sealed: the sealed part from now on.
    """

    instead_of: str
    entry_count: int
    receipts: str
    sealed: SegmentList
