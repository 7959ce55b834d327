"""A turn's data outside its entity and orchestration: large contents, sealed history, long requests."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from durable_agent_host.app_functions import call_app_function, name_of_function
from durable_agent_host.codec.offloaded_text import blob_name
from durable_agent_host.codec.session_blobs import json_bytes_of, json_of_bytes
from durable_agent_host.errors import (
    AppFunctionTimeoutError,
    CorruptStateError,
    LogError,
    LogUnavailableError,
    RedactionError,
    StateError,
)
from durable_agent_host.model.conversation_file import ServiceFilesOf, no_files
from durable_agent_host.model.ids import derived_id, entity_name
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import Turn, TurnOutcome, TurnRequest
from durable_agent_host.segments.conversation_reader import ConversationReader, OpenSegments
from durable_agent_host.segments.protocol import OWNER, BlobStore
from durable_agent_host.segments.session_owner_index import SessionOwnerIndex
from durable_agent_host.session.receipts import expired_outcome
from durable_agent_host.session.sealing import Withdrawal, seal_outcome
from durable_agent_host.session.transcript import external_provider_of
from durable_agent_host.turn.turn_redactor import Redactor
from durable_agent_host.turn.turn_wire import TRAVELS_BYTES, join_request, raw_fields, split_request


class SessionKey(NamedTuple):
    """The name of a session.

    Attributes:
        agent: the agent's registered name.
        session_id: without the agent's name.
    """

    agent: str
    session_id: str


_LONG_ANSWER_FIELDS: Final = ("reason", "arguments", "result", "error")


class TurnDataStorage:
    """Stores data too large for the session's entity and the turn's orchestration.

    Args:
        open_store: returns the process's blob store; the first call opens it.
        seen: for how many sealed receipts a session's head keeps a mark.
        grace_seconds: how long stored data may exist before a head refers to it.
        find_redactor: returns the redactor of an agent's turns, or None.
        service_files: returns what finds the files of an agent's service.
    """

    def __init__(
        self,
        open_store: OpenSegments,
        *,
        seen: int,
        grace_seconds: float,
        find_redactor: Callable[[str], Redactor | None] = lambda _agent: None,
        service_files: Callable[[str], ServiceFilesOf] = lambda _agent: no_files,
    ) -> None:
        self.open_store = open_store
        self.owned = SessionOwnerIndex(open_store)
        self.seen = seen
        self.grace_seconds = grace_seconds
        self.find_redactor = find_redactor
        self._service_files = service_files

    def record(self, session: Session, name: SessionKey | None = None) -> ConversationReader:
        """Return the record of a session."""
        record = ConversationReader(self.open_store, session)
        if name is not None:
            record.service_files = self._service_files(name.agent)
        return record

    async def offload_outcome(
        self,
        session: Session,
        request: TurnRequest,
        outcome: TurnOutcome,
        *,
        response: Mapping[str, Any] | None,
        withdrawal: Withdrawal | None,
    ) -> TurnOutcome:
        """Store the data of a turn's end that the commit does not carry.

        Returns:
            The outcome to journal and commit.

        Raises:
            LogError: the store does not answer.
        """
        is_requested = request.orchestration_id and outcome.status == "completed"
        response = (response or outcome.entries[-1]) if is_requested else None
        new_namespace = derived_id("namespace", request.agent.casefold(), request.session_id, request.turn_id)
        sealed_outcome = seal_outcome(
            session, outcome, new_namespace=new_namespace, seen=self.seen, withdrawal=withdrawal
        )
        if sealed_outcome.blobs:
            is_new = not session.sealed.namespace
            owner = {OWNER: session_owner(request.agent, request.session_id).encode()} if is_new else {}
            await self.open_store().put(sealed_outcome.namespace, {**owner, **sealed_outcome.blobs})
        travelling_outcome = sealed_outcome.outcome
        if len(json_bytes_of([outcome.text, outcome.messages])) > TRAVELS_BYTES:
            is_in_record = outcome.entries and external_provider_of(outcome.entries[-1]) is None
            answer = {"text": outcome.text, "messages": outcome.messages}
            text_at = RECORD if is_in_record else await self._store_json(request, answer)
            travelling_outcome = replace(travelling_outcome, text="", messages=(), text_at=text_at)
        if response is None:
            return travelling_outcome
        if len(json_bytes_of(response)) <= TRAVELS_BYTES:
            return replace(travelling_outcome, response={"entry": response})
        return replace(
            travelling_outcome,
            response={"namespace": request.log_id, "name": await self._store_json(request, response)},
        )

    async def redact_request(self, request: TurnRequest) -> TurnRequest:
        """Return a request as clients see it, and as it is kept.

        Raises:
            RedactionError: the app's function failed.
        """
        redactor = self.find_redactor(request.agent)
        if redactor is None:
            return request
        return await redact_in_thread(redactor, lambda: redactor.request(request))

    async def keep_request(self, request: TurnRequest) -> dict[str, Any]:
        """Store a request's parts that are too large to travel, or all of one that must not travel unredacted.

        Returns:
            The request as it travels, as JSON.

        Raises:
            LogUnavailableError: the store does not answer; nothing was begun.
            RedactionError: the app's function failed; nothing was begun.
        """
        try:
            if self.find_redactor(request.agent) is not None:
                redacted_request = await self.redact_request(request)
                namespace = self._message_namespace(request)
                raw = (
                    await self._store_json(request, raw_fields(request), namespace=namespace)
                    if redacted_request is not request
                    else ""
                )
                request = replace(redacted_request, raw=raw)
            small, large = split_request(request)
            return small if large is None else small | {"stored": await self._store_json(request, large)}
        except LogError as error:
            raise LogUnavailableError(f"{error}. The turn could not begin: try again later") from error

    async def delete_turn_data(self, request: TurnRequest) -> None:
        """Delete what is stored only for a turn. Guarantee: idempotent.

        Raises:
            LogError: the store does not answer.
        """
        if request.stored or split_request(request)[1] is not None:
            store = self.open_store()
            namespace = request.log_id
            await store.delete(namespace, [blob.name async for blob in store.list_blobs(namespace)])

    async def delete_unredacted(self, log_id: str) -> None:
        """Delete what was said in a turn of an agent with redaction. Guarantee: idempotent.

        Raises:
            LogError: the store does not answer.
        """
        store = self.open_store()
        namespace = unredacted_namespace(log_id)
        if names := [blob.name async for blob in store.list_blobs(namespace)]:
            await store.delete(namespace, names)

    async def load_request(self, request: TurnRequest) -> TurnRequest:
        """Return a request with its stored parts.

        Raises:
            CorruptStateError: the stored parts are gone.
            LogError: the store does not answer.
        """
        namespace = request.log_id
        name = request.raw or request.stored
        if not name:
            return request
        namespace = unredacted_namespace(namespace) if request.raw else namespace
        return join_request(request, await self._load_json(namespace, name, "a turn's request"))

    async def store_replies(
        self, request: TurnRequest, replies: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Mapping[str, Any]]:
        """Store the parts of answers to pending calls that are too large to travel.

        Returns:
            The answers as they travel, redacted, with ``stored`` where their parts are stored, and ``truncated`` where
            they are too large to travel.

        Raises:
            LogError: the store does not answer.
            RedactionError: the app's function failed; nothing was stored.
        """
        redactor = self.find_redactor(request.agent)
        travelling_replies: dict[str, Mapping[str, Any]] = {}
        for call_id, answer in replies.items():
            visible_reply = dict(answer)
            if redactor is not None:
                visible_reply = await redact_in_thread(redactor, lambda answer=answer: redactor.marked(answer))
            stored_fields = {name: answer[name] for name in _LONG_ANSWER_FIELDS if name in answer}
            if len(json_bytes_of(visible_reply)) > TRAVELS_BYTES:
                visible_reply |= dict.fromkeys(stored_fields) | {"truncated": True}
            if visible_reply != answer:
                visible_reply["stored"] = await self._store_json(
                    request, stored_fields, namespace=self._message_namespace(request)
                )
            travelling_replies[call_id] = visible_reply
        return travelling_replies

    async def load_replies(
        self, request: TurnRequest, replies: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Mapping[str, Any]]:
        """Return answers with their stored parts.

        Raises:
            CorruptStateError: the stored parts are gone.
            LogError: the store does not answer.
        """
        full_replies: dict[str, Mapping[str, Any]] = {}
        for call_id, answer in replies.items():
            name: Any = answer.get("stored")
            stored_fields: Any = (
                await self._load_json(self._message_namespace(request), name, "the answer to a call") if name else {}
            )
            full_replies[call_id] = {**answer, **stored_fields}
        return full_replies

    async def load_turn(self, turn: Turn, read_session: Callable[[], Awaitable[Session | None]]) -> Turn:
        """Put the parts that were too large to travel back into a turn.

        Returns:
            The turn; if its text is gone with its session, it has failed with that reason.

        Raises:
            LogError: the store does not answer.
        """
        request = turn.request
        outcome = turn.outcome
        with suppress(StateError):
            request = await self.load_request(replace(request, raw=None) if request.raw else request)
        if outcome is not None and outcome.text_at:
            text, messages = await self._answer(request, outcome, read_session)
            outcome = replace(outcome, text=text, messages=messages) if text or messages else expired_outcome(outcome)
        if request is turn.request and outcome is turn.outcome:
            return turn
        return replace(turn, request=request, outcome=outcome)

    async def _answer(
        self, request: TurnRequest, outcome: TurnOutcome, read_session: Callable[[], Awaitable[Session | None]]
    ) -> tuple[str, tuple[Mapping[str, Any], ...]]:
        try:
            if outcome.text_at != RECORD:
                with suppress(CorruptStateError):  # it is deleted with the turn's log; the record may still have it
                    answer: Any = await self._load_json(request.log_id, outcome.text_at, "a turn's answer")
                    return str(answer["text"]), tuple(answer["messages"])
            session = await read_session()
            name = SessionKey(request.agent, request.session_id)
            return ("", ()) if session is None else await self.record(session, name).answer(request.turn_id)
        except StateError:
            return "", ()

    async def load_response(self, response: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the response entry passed to an orchestration; see `TurnOutcome.response`."""
        if "entry" in response:
            return response["entry"]
        return await self._load_json(response["namespace"], response["name"], "a turn's response")

    async def _store_json(self, request: TurnRequest, value: Any, *, namespace: str = "") -> str:
        data = json_bytes_of(value)
        name = blob_name(data)
        owner = turn_owner(request).encode()
        await self.open_store().put(namespace or request.log_id, {OWNER: owner, name: data})
        return name

    def _message_namespace(self, request: TurnRequest) -> str:
        """Return the namespace of what was said in a turn: a separate one when it must not be kept."""
        namespace = request.log_id
        return unredacted_namespace(namespace) if self.find_redactor(request.agent) is not None else namespace

    async def _load_json(self, namespace: str, name: str, label: str) -> Any:
        return json_of_bytes((await self.open_store().get(namespace, [name]))[name], label)


class NullTurnDataStorage(TurnDataStorage):
    """Keeps nothing outside, for self-contained conversations."""

    def __init__(self) -> None:
        super().__init__(_no_blobs, seen=0, grace_seconds=0.0)

    async def offload_outcome(
        self,
        session: Session,
        request: TurnRequest,
        outcome: TurnOutcome,
        *,
        response: Mapping[str, Any] | None,
        withdrawal: Withdrawal | None,
    ) -> TurnOutcome:
        """Return the outcome as it is."""
        del session, request, response, withdrawal
        return outcome


def _no_blobs() -> BlobStore:
    raise CorruptStateError("the conversation has parts outside of it, which can be read only with its session")


NULL_TURN_DATA_STORAGE: Final = NullTurnDataStorage()
_ORCHESTRATION: Final = "orchestration:"

RECORD: Final = "record"
"""The path of an answer's text that is not a separate blob."""


def unredacted_namespace(namespace: str) -> str:
    """Return the namespace of what was said in a turn and must not be kept; it is deleted when the turn has ended."""
    return derived_id("raw", namespace)


def turn_owner(request: TurnRequest) -> str:
    """Return the owner of a turn's namespaces: the orchestration that reads the response at each replay, or its own."""
    return _ORCHESTRATION + (request.orchestration_id or request.turn_id)


def orchestration_of(owner: str) -> str | None:
    """Return the instance id of an owner that is an orchestration, else None."""
    return owner.removeprefix(_ORCHESTRATION) if owner.startswith(_ORCHESTRATION) else None


def is_session(owner: str) -> bool:
    """Return whether the owner of a namespace is a session."""
    return owner.startswith("@")


def session_owner(agent: str, session_id: str) -> str:
    """Return a session as the owner of a namespace: its entity, as Durable Functions writes it."""
    return f"@{entity_name(agent).lower()}@{session_id}"


async def redact_in_thread[T](redactor: Redactor, redact_all: Callable[[], T]) -> T:
    """Compute, in a thread for this, what calls the app's function, which may be slow.

    Raises:
        RedactionError: the app's function failed, or takes too long.
    """
    try:
        return await call_app_function("redact", redact_all, name=name_of_function(redactor.redact))
    except AppFunctionTimeoutError as error:
        raise RedactionError(f"{error}, so nothing of the turn was stored") from None
