"""A turn's data outside its entity and orchestration: large contents, sealed history, long requests."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from durable_agent_host.codec.offloaded_text import piece_name
from durable_agent_host.codec.session_blobs import json_bytes_of, json_of_bytes
from durable_agent_host.concurrency.thread_offload import aside_of_texts
from durable_agent_host.errors import CorruptStateError, LogError, LogUnavailableError, StateError
from durable_agent_host.model.ids import derived_id, entity_name, turn_log_id
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import Turn, TurnOutcome, TurnRequest
from durable_agent_host.segments.conversation_reader import OpenSegments, ReadKept, Record
from durable_agent_host.segments.protocol import SegmentStore
from durable_agent_host.segments.session_owner_index import OwnedSessions
from durable_agent_host.session.external_messages import kept_by
from durable_agent_host.session.receipts import gone
from durable_agent_host.session.sealing import seal_outcome
from durable_agent_host.turn.turn_redactor import Redactor
from durable_agent_host.turn.turn_wire import join_request, raw_fields, split_request
from durable_agent_host.turn_log.crash_points import reach

TRAVELS_BYTES: Final = 4 * 1024
"""Largest part of a request, answer or response that travels through orchestrations; larger ones go by reference."""


class SessionName(NamedTuple):
    """The name of a session.

    Attributes:
        agent: the agent's registered name.
        session_id: without the agent's name.
    """

    agent: str
    session_id: str


class Elsewhere(Protocol):
    """Sessions' data in the app's history providers."""

    def reader(self, name: SessionName, record: Record) -> ReadKept | None:
        """Return a reader of a session's messages, or None when the host keeps them."""
        ...


class Keeper:
    """Stores data too large for the session's entity and the turn's orchestration.

    Args:
        open_store: returns the process's piece store; the first call opens it.
        seen: for how many sealed receipts a session's head keeps a mark.
        grace_seconds: how long a hold on a home is honoured before a head refers to it.
        elsewhere: data kept by the app's history providers.
        redactors: by agent, only agents with redaction; a live view.
    """

    def __init__(
        self,
        open_store: OpenSegments,
        *,
        seen: int,
        grace_seconds: float,
        elsewhere: Elsewhere | None = None,
        redactors: Mapping[str, Redactor] = MappingProxyType({}),
    ) -> None:
        self.open_store = open_store
        self.owned = OwnedSessions(open_store)
        self.seen = seen
        self.grace_seconds = grace_seconds
        self._elsewhere = elsewhere
        self._redactors = redactors

    def record(self, session: Session, name: SessionName | None = None) -> Record:
        """Return the record of a session.

        Args:
            session: its head.
            name: the agent's registered name and the session's id, to read messages kept by a history provider of the
                app; without it, their entries have no messages.
        """
        record = Record(self.open_store, session)
        if name is not None and self._elsewhere is not None:
            record.read_kept = self._elsewhere.reader(name, record)
        return record

    async def seal(
        self,
        session: Session,
        request: TurnRequest,
        outcome: TurnOutcome,
        *,
        response: Mapping[str, Any] | None = None,
    ) -> TurnOutcome:
        """Store the data of a turn's end that the commit does not carry.

        Guarantee: idempotent; pieces of an attempt that is never committed are swept.

        Args:
            session: the head, as it was when the turn was granted.
            request: of the turn.
            outcome: the turn's, with complete entries, or with entries whose messages are kept elsewhere.
            response: the whole response entry, for the orchestration that asked; by default the last entry.

        Returns:
            The outcome to journal and commit.

        Raises:
            LogError: the store does not answer.
        """
        is_asked_for = request.orchestration_id and outcome.status == "completed"
        response = (response or outcome.entries[-1]) if is_asked_for else None
        new_home = derived_id("home", request.agent.casefold(), request.session_id, request.turn_id)
        sealed = seal_outcome(session, outcome, new_home=new_home, seen=self.seen)
        if sealed.pieces:
            store = self.open_store()
            if not session.sealed.home:
                await store.hold(sealed.home, holder_of(request.agent, request.session_id))
            reach("pieces.after_hold")
            await store.put(sealed.home, sealed.pieces)
            reach("pieces.after_put")
        text = outcome.text
        text_at = ""
        if len(json_bytes_of(text)) > TRAVELS_BYTES:
            is_in_record = outcome.entries and kept_by(outcome.entries[-1]) is None
            text_at = RECORD if is_in_record else await self._keep(request, text)
            text = ""
        kept = replace(sealed.outcome, text=text, text_at=text_at)
        if response is None:
            return kept
        if len(json_bytes_of(response)) <= TRAVELS_BYTES:
            return replace(kept, response={"entry": response})
        home = home_of_turn(request)
        await self.open_store().hold(home, holder_of_orchestration(str(request.orchestration_id)))
        return replace(kept, response={"home": home, "name": await self._keep(request, response)})

    def redactor_of(self, agent: str) -> Redactor | None:
        """Return the redactor of an agent's turns, or None."""
        return self._redactors.get(agent)

    async def shown(self, request: TurnRequest) -> TurnRequest:
        """Return a request as clients see it, and as it is kept.

        Raises:
            RedactionError: the app's function failed.
        """
        redactor = self._redactors.get(request.agent)
        if redactor is None:
            return request
        return await aside_of_texts(request, lambda: redactor.request(request))

    async def keep_request(self, request: TurnRequest) -> TurnRequest:
        """Store a request's parts that are too large to travel, or all of one that must not travel unredacted.

        Guarantee: idempotent.

        Args:
            request: the turn's request.

        Returns:
            The request as it travels; unchanged when it is small.

        Raises:
            LogUnavailableError: the store does not answer; nothing was begun.
            RedactionError: the app's function failed; nothing was begun.
        """
        try:
            if request.agent in self._redactors:
                shown = await self.shown(request)
                home = self._own_home(request)
                raw = await self._keep(request, raw_fields(request), home=home) if shown is not request else ""
                request = replace(shown, raw=raw)
            small, large = split_request(request, TRAVELS_BYTES)
            return request if large is None else replace(small, stored=await self._keep(request, large))
        except LogError as error:
            raise LogUnavailableError(f"{error}. The turn could not begin: try again later") from error

    async def forget_turn(self, request: TurnRequest) -> None:
        """Delete what is stored only for a turn. Guarantee: idempotent.

        Raises:
            LogError: the store does not answer.
        """
        if request.stored or split_request(request, TRAVELS_BYTES)[1] is not None:
            store = self.open_store()
            home = home_of_turn(request)
            await store.delete(home, [piece.name async for piece in store.pieces(home)])

    async def whole_request(self, request: TurnRequest) -> TurnRequest:
        """Return a request with its stored parts.

        Args:
            request: as it travelled.

        Raises:
            CorruptStateError: the stored parts are gone.
            LogError: the store does not answer.
        """
        home = home_of_turn(request)
        name = request.raw or request.stored
        if not name:
            return request
        home = raw_home(home) if request.raw else home
        return join_request(request, await self._kept(home, name, "a turn's request"))

    async def renew(self, request: TurnRequest, answers: Mapping[str, Mapping[str, Any]] | None) -> None:
        """Renew the retention of what is stored only for a turn: a turn may wait long, again and again.

        Args:
            request: as it travelled.
            answers: people's answers, as they travelled.

        Raises:
            CorruptStateError: the stored parts are gone.
            LogError: the store does not answer.
        """
        said = [answer.get("stored") for answer in (answers or {}).values()]
        own = self._own_home(request)
        of_turn = home_of_turn(request)
        kept = ((of_turn, request.stored), (raw_home(of_turn), request.raw), *((own, name) for name in said))
        for home, names in ((home, [str(name)]) for home, name in kept if name):
            await self.open_store().put(home, await self.open_store().get(home, names))

    async def keep_answers(
        self, request: TurnRequest, answers: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Mapping[str, Any]]:
        """Store the parts of people's answers that are too large to travel.

        Args:
            request: of the turn.
            answers: by call id.

        Returns:
            The answers as they travel, with ``stored`` where reason and arguments are stored.

        Raises:
            LogError: the store does not answer.
        """
        kept: dict[str, Mapping[str, Any]] = {}
        for call_id, answer in answers.items():
            kept[call_id] = answer
            said = {name: answer.get(name) for name in ("reason", "arguments")}
            is_stored = request.agent in self._redactors or len(json_bytes_of(dict(answer))) > TRAVELS_BYTES
            if is_stored and any(said.values()):
                rest = {name: value for name, value in answer.items() if name not in said}
                kept[call_id] = {**rest, "stored": await self._keep(request, said, home=self._own_home(request))}
        return kept

    async def whole_answers(
        self, request: TurnRequest, answers: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Mapping[str, Any]]:
        """Return answers with their stored parts.

        Raises:
            CorruptStateError: the stored parts are gone.
            LogError: the store does not answer.
        """
        whole: dict[str, Mapping[str, Any]] = {}
        for call_id, answer in answers.items():
            name: Any = answer.get("stored")
            said: Any = await self._kept(self._own_home(request), name, "a person's answer") if name else {}
            whole[call_id] = {**answer, **said}
        return whole

    async def whole_turn(self, turn: Turn, read_session: Callable[[], Awaitable[Session | None]]) -> Turn:
        """Put the parts that were too large to travel back into a turn.

        Args:
            turn: from its orchestration.
            read_session: reads the current head of its session; None when it is gone.

        Returns:
            The turn; if its text is gone with its session, it has failed with that reason.

        Raises:
            LogError: the store does not answer.
        """
        request = turn.request
        outcome = turn.outcome
        with suppress(StateError):
            request = await self.whole_request(replace(request, raw=None) if request.raw else request)
        if outcome is not None and outcome.text_at:
            text = await self._text(request, outcome, read_session)
            outcome = replace(outcome, text=text) if text else gone(outcome)
        if request is turn.request and outcome is turn.outcome:
            return turn
        return replace(turn, request=request, outcome=outcome)

    async def _text(
        self, request: TurnRequest, outcome: TurnOutcome, read_session: Callable[[], Awaitable[Session | None]]
    ) -> str:
        try:
            if outcome.text_at != RECORD:
                with suppress(CorruptStateError):  # it is deleted with the turn's log; the record may still have it
                    return str(await self._kept(home_of_turn(request), outcome.text_at, "a turn's answer"))
            session = await read_session()
            name = SessionName(request.agent, request.session_id)
            return "" if session is None else await self.record(session, name).answer(request.turn_id)
        except StateError:
            return ""

    async def whole_response(self, response: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the response entry passed to an orchestration; see `TurnOutcome.response`."""
        if "entry" in response:
            return response["entry"]
        return await self._kept(response["home"], response["name"], "a turn's response")

    async def _keep(self, request: TurnRequest, value: Any, *, home: str = "") -> str:
        data = json_bytes_of(value)
        name = piece_name(data)
        await self.open_store().put(home or home_of_turn(request), {name: data})
        return name

    def _own_home(self, request: TurnRequest) -> str:
        """Return the home of what was said in a turn: a separate one when it must not be kept."""
        home = home_of_turn(request)
        return raw_home(home) if request.agent in self._redactors else home

    async def _kept(self, home: str, name: str, what: str) -> Any:
        data = await self.record(Session()).pieces({(home, name)})
        return json_of_bytes(data[home, name], what)


class NoKeeper(Keeper):
    """Keeps nothing outside, for self-contained conversations."""

    def __init__(self) -> None:
        super().__init__(_no_pieces, seen=0, grace_seconds=0.0)

    async def seal(
        self,
        session: Session,
        request: TurnRequest,
        outcome: TurnOutcome,
        *,
        response: Mapping[str, Any] | None = None,
    ) -> TurnOutcome:
        """Return the outcome as it is."""
        del session, request, response
        return outcome

    async def keep_request(self, request: TurnRequest) -> TurnRequest:
        """Return the request as it is."""
        return request


def _no_pieces() -> SegmentStore:
    raise CorruptStateError("the conversation has parts outside of it, which can be read only with its session")


NO_KEEPER: Final = NoKeeper()
_ORCHESTRATION: Final = "orchestration:"

RECORD: Final = "record"
"""The path of an answer's text that is not a separate piece."""


def home_of_turn(request: TurnRequest) -> str:
    """Return the home of what only a turn refers to; it is deleted with the turn's log. Guarantee: pure."""
    return turn_log_id(request.agent, request.session_id, request.turn_id)


def raw_home(home: str) -> str:
    """Return the home of what was said in a turn and must not be kept; it is deleted when the turn has ended.

    Guarantee: pure.

    Args:
        home: of what only the turn refers to.
    """
    return derived_id("raw", home)


def holder_of_orchestration(instance_id: str) -> str:
    """Return an orchestration's name as a holder of a turn's home: each replay reads the response. Guarantee: pure."""
    return _ORCHESTRATION + instance_id


def orchestration_of(holder: str) -> str | None:
    """Return the instance id of a holder that is an orchestration, else None. Guarantee: pure."""
    return holder.removeprefix(_ORCHESTRATION) if holder.startswith(_ORCHESTRATION) else None


def is_session(holder: str) -> bool:
    """Return whether a holder is a session. Guarantee: pure."""
    return holder.startswith("@")


def holder_of(agent: str, session_id: str) -> str:
    """Return a session's name as a holder of homes: its entity, as Durable Functions writes it. Guarantee: pure.

    Args:
        agent: the agent's registered name.
        session_id: without the agent's name.
    """
    return f"@{entity_name(agent).lower()}@{session_id}"
