"""Turns and sessions for the interfaces to clients: start, read, wait, answer, cancel."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from aiohttp import ClientConnectionError, ClientResponseError
from azure.durable_functions import DurableOrchestrationClient

from durable_agent_host.concurrency.thread_safe_waiters import Notifier
from durable_agent_host.durable.app_secret import NOT_STARTED_BY_APP, CallbackToken, answer_purpose, parse_token
from durable_agent_host.durable.instance_status import has_ended, read_turn, waiting_instances
from durable_agent_host.durable.ownership_claims import OwnershipClaims
from durable_agent_host.durable.session_copies import SessionCopier
from durable_agent_host.durable.session_documents import (
    FindHistory,
    SessionDocuments,
    SessionLookup,
    decode_best_effort,
)
from durable_agent_host.durable.session_erasure import Erasures
from durable_agent_host.durable.session_queue_activity import TurnStopper
from durable_agent_host.durable.store_health import StoreProbes
from durable_agent_host.durable.task_hub import TaskHub
from durable_agent_host.durable.turn_orchestrator import REPLIES_EVENT, TURN_ORCHESTRATION
from durable_agent_host.durable.workflow_functions import mark_workflow_input
from durable_agent_host.durable.workflow_runs import WorkflowQuestion as WorkflowQuestion  # noqa: PLC0414 - routes import it from here
from durable_agent_host.durable.workflow_runs import WorkflowRuns, orchestration_name
from durable_agent_host.errors import (
    AnswerGoneError,
    CorruptStateError,
    IdempotencyKeyReusedError,
    RequestError,
    StateError,
    TurnTimedOutError,
)
from durable_agent_host.model.access import Access, RequestContext
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import Turn, TurnOutcome, TurnRequest
from durable_agent_host.segments.session_files import SessionFiles
from durable_agent_host.segments.turn_data_storage import SessionKey, TurnDataStorage, redact_in_thread
from durable_agent_host.session.admission import GO_ON, find_resume_obstacle, is_retryable
from durable_agent_host.session.receipts import is_same_request, turn_from_receipt
from durable_agent_host.turn.plan import LOG_UNAVAILABLE
from durable_agent_host.turn.turn_wire import decode_turn_request, encode_turn_request
from durable_agent_host.turn.waiting_status import MAX_VISIBLE


async def _rounds(seconds: float) -> AsyncIterator[None]:
    """Yield at once, then after longer and longer pauses, until the time is over."""
    deadline = time.monotonic() + seconds
    pause = AFTER_HINT_SECONDS
    while time.monotonic() < deadline:
        yield
        await asyncio.sleep(pause)
        pause = min(pause * 2, MAX_ADMISSION_POLL_SECONDS)


def _is_from_outside(turn: Turn) -> bool:
    """Return whether a turn's orchestration was started from outside: it has not replaced a turn of the same id."""
    return turn.outcome is not None and NOT_STARTED_BY_APP in (turn.outcome.error or {}).get("message", "")


def _is_seen(turn: Turn, lookup: SessionLookup | None, access: Access) -> bool:
    """Return whether a turn exists for the current request: in a session of its owner, or in a new one."""
    if lookup is None:
        return True
    owner = turn.request.session_owner
    if not lookup.exists:  # it will be admitted in a moment, or was refused
        return owner == access.owner
    return lookup.is_seen and owner in (None, lookup.owner)


FIRST_POLL_SECONDS = 0.15
MAX_POLL_SECONDS = 1.0
AFTER_HINT_SECONDS = 0.001
MAX_ADMISSION_POLL_SECONDS = 0.05
ADMISSION_SECONDS: Final = 2.0
"""A 202 waits this long for the turn to be admitted; later refusals show in the turn's status."""
_PENDING_VISIBLE_SECONDS: Final = 3.0
"""A client may know a call from its event this long before the turn shows it as pending."""
AFTER_RUN_SECONDS = 0.05
PROGRESS_SECONDS: Final = 30
"""Between two notes of progress that are kept of a call: each is an event of the turn's orchestration, or recorded."""
_STORE_ERROR: Final = re.compile(r"status code 503\b|\bStore\w*Error\b")


@dataclass(frozen=True)
class TurnServices:
    """What the turn clients of all requests share; made once per app.

    Attributes:
        wakeups: notify the waiters of this process.
        stopper: stops turns.
        probes: check the stores, before a turn starts and for health.
        storage: stores long requests, reads long answers and what sessions have outside their entities.
        find_history: returns where the conversations of an agent are.
        hub: plain or encrypting access to the task hub.
    """

    wakeups: Notifier
    stopper: TurnStopper
    probes: StoreProbes
    storage: TurnDataStorage
    find_history: FindHistory
    hub: TaskHub


class TurnClient:
    """Starts, reads, awaits, answers and cancels turns, for one request.

    Args:
        client: the SDK's, bound to the request's function.
        services: of the app.
        context: of the request, made by the gate: what it may read.

    Attributes:
        context: the same.
        documents, contexts: stored sessions, and what of them the model gets.
        claims: whose sessions turns run in.
        check_keys: checks whether the stored data can be read; see `TaskHub.check`.
    """

    def __init__(
        self,
        client: DurableOrchestrationClient,
        services: TurnServices,
        context: RequestContext,
    ) -> None:
        self._plain_client = client
        self._services = services
        client = services.hub.client(client)
        self.context = context
        self.check_keys = services.hub.check
        self.storage = services.storage
        self._secret = services.hub.secret
        self._probes = services.probes
        self._client = client
        self._wakeups = services.wakeups
        self._stopper = services.stopper
        self.documents = SessionDocuments(client, context.access, services.storage, services.find_history)
        self.claims = OwnershipClaims(client, self.documents, self._secret)

    def in_context(self, context: RequestContext) -> "TurnClient":
        """Return a client for another request of the same function."""
        return TurnClient(self._plain_client, self._services, context)

    @property
    def copies(self) -> SessionCopier:
        """Copies of stored sessions."""
        return SessionCopier(self.documents)

    @property
    def workflow_runs(self) -> WorkflowRuns:
        """Questions of the runs of hosted workflows."""
        return WorkflowRuns(self._plain_client)

    @property
    def erasures(self) -> Erasures:
        """The end of stored sessions."""
        return Erasures(self._client, self.documents)

    def files(
        self, agent: str, session_id: str, session: Session | None = None, *, owner: Owner | None = None
    ) -> SessionFiles:
        """Return the files of a session; if it has no head, only its uploads, which are the owner's or the caller's."""
        return SessionFiles(self.storage, agent, session_id, session, owner=owner or self.context.access.owner)

    async def start(self, request: TurnRequest) -> None:
        """Start a turn's orchestration. Guarantee: idempotent by the turn's id.

        Raises:
            LogUnavailableError: the turn could not run; nothing was started.
        """
        await self.check_log()
        travels = await self.storage.keep_request(request)
        try:
            await self._client.start_new(TURN_ORCHESTRATION, request.turn_id, travels)
        except Exception:
            if await self.read(request.turn_id) is None:
                raise

    async def start_once(self, request: TurnRequest, key: str) -> Turn | None:
        """Start a turn that the client may have started before, with the same key.

        It runs again if it was rejected or has failed for a while; a failed one resumes, with its own request.

        Returns:
            The turn if it has ended, else None.

        Raises:
            AnswerGoneError: it would resume, and its request or log is no longer kept.
            IdempotencyKeyReusedError: the key was used for another request; nothing was started.
            LogUnavailableError: the turn could not run; nothing was started.
        """
        turn = await self.find(request.agent, request.session_id, request.turn_id)
        if turn is None:
            await self.start(request)
            turn = await self.read(request.turn_id)  # a concurrent request may have started it
        elif is_same_request(turn.request.request_hash, request.request_hash) and await self._run_again(turn, request):
            turn = await self.read(request.turn_id)
        if turn is not None and not is_same_request(turn.request.request_hash, request.request_hash):
            raise IdempotencyKeyReusedError(
                f"Idempotency-Key {key!r} was used for another request: send the same body again, or another key"
            )
        return turn if turn is not None and turn.outcome is not None else None

    async def _run_again(self, turn: Turn, request: TurnRequest) -> bool:
        """Run an ended turn again if it was rejected or has failed for a while; return whether it runs."""
        outcome = turn.outcome
        if outcome is None:
            return False
        is_rejected = outcome.status == "rejected" and (outcome.error or {}).get("type") in _TRANSIENT_TYPES
        if (is_rejected or is_retryable(outcome.error)) and await self.find_resume_obstacle(turn) is None:
            await self.resume(turn)
        elif is_rejected:
            await self.start(request)
        else:
            return False
        return True

    async def find_resume_obstacle(self, turn: Turn) -> str | None:
        """Return why a turn cannot resume, or None."""
        request = turn.request
        session = await self.documents.session(request.agent, request.session_id) or Session()
        return find_resume_obstacle(session, request.turn_id)

    async def resume(self, turn: Turn) -> None:
        """Resume a failed turn from its journal, in a new orchestration of the same id. Guarantee: idempotent.

        Raises:
            AnswerGoneError: its request, or the log of what it has done, is no longer kept.
            LogUnavailableError: the turn could not run; nothing was started.
        """
        await self.check_log()
        stored_turn = await read_turn(self._client, turn.request.turn_id)  # as it travels
        if stored_turn is None or not await self._stopper.has_log(turn.request):
            raise AnswerGoneError(f"the journal of the turn is no longer kept, so it cannot resume: {GO_ON}")
        request = replace(stored_turn.request, resumes=True)
        with suppress(Exception):  # another caller has resumed it
            await self._client.start_new(TURN_ORCHESTRATION, request.turn_id, encode_turn_request(request))

    async def read(self, turn_id: str) -> Turn | None:
        """Read a turn's current state, whoever its owner.

        Returns:
            The turn, or None when its orchestration does not exist, has been purged, or is not a turn.

        Raises:
            CorruptStateError: what the task hub stores of it is damaged.
        """
        turn = await read_turn(self._client, turn_id)
        return turn and await self._complete(turn)

    async def find(self, agent: str, session_id: str, turn_id: str) -> Turn | None:
        """Read a turn of a session, from its receipt when its orchestration has been purged.

        Returns:
            The turn, or None when the session does not know it, or no such session exists for the request.

        Raises:
            CorruptStateError: what the task hub stores of it is damaged.
        """
        access = self.documents.access
        # The same reads in the same order for any caller, so that the time of a response reveals nothing.
        lookup = await self.documents.lookup(agent, session_id) if access.is_restricted else None
        try:
            turn = await read_turn(self._client, turn_id)
        except CorruptStateError:
            if lookup is not None and not lookup.is_seen:
                return None
            raise
        if turn is not None and _is_from_outside(turn):
            turn = None
        is_here = turn is not None and (turn.request.agent, turn.request.session_id) == (agent, session_id)
        if turn is not None and is_here and _is_seen(turn, lookup, access):
            return await self._complete(turn)
        if (turn is not None and lookup is None) or (lookup is not None and not lookup.is_seen):
            return None
        try:
            state = lookup.state if lookup is not None else await self.documents.read(agent, session_id)
            session, _ = decode_best_effort(state)  # without malformed receipts
        except StateError:
            return None
        return await self._read_stored(agent, session_id, turn_id, session) if session else None

    async def _complete(self, turn: Turn) -> Turn:
        request = turn.request
        return await self.storage.load_turn(turn, lambda: self.documents.session(request.agent, request.session_id))

    async def _read_stored(self, agent: str, session_id: str, turn_id: str, session: Session) -> Turn | None:
        """Read a turn whose orchestration no longer exists, or does not exist yet."""
        if request_document := session.requests.get(turn_id):  # it arrived as a signal
            return await self._complete(Turn(request=decode_turn_request(request_document), outcome=None))
        completed_turn = await self.storage.record(session, SessionKey(agent, session_id)).find_turn_end(turn_id)
        return turn_from_receipt(agent, session_id, completed_turn) if completed_turn is not None else None

    def hint(self, turn_id: str) -> None:
        """Notify the waiters of this process that a turn is about to end; its orchestration may run in another one."""
        asyncio.get_running_loop().call_later(AFTER_RUN_SECONDS, self._wakeups.notify, turn_id)

    async def wait(
        self,
        turn_id: str,
        *,
        seconds: float,
        or_people: bool = False,
        first_poll_seconds: float = FIRST_POLL_SECONDS,
        max_poll_seconds: float = MAX_POLL_SECONDS,
    ) -> Turn:
        """Wait until a turn has ended: notified in this process just before the end is committed, else by polling.

        Returns:
            The turn with its outcome, or with the calls that wait.

        Raises:
            TurnTimedOutError: it is still running, and continues.
        """
        turn = await self._poll(
            turn_id,
            lambda turn: turn.outcome is not None or (or_people and bool(turn.pending)),
            seconds=seconds,
            first_poll_seconds=first_poll_seconds,
            max_poll_seconds=max_poll_seconds,
        )
        if turn is None:
            raise TurnTimedOutError(
                f"turn {turn_id} is still running after {seconds:g} s, and continues: read its turn_url, or repeat the "
                "request with the same Idempotency-Key"
            )
        return turn

    async def wait_or_queue(self, request: TurnRequest, *, seconds: float) -> Turn:
        """Wait until a turn has ended or waits for an answer, or stands in the queue behind a turn that waits for one.

        Returns:
            The turn, or else the turn that runs before it.

        Raises:
            TurnTimedOutError: it is still running, and continues.
        """
        end = asyncio.ensure_future(self.wait(request.turn_id, seconds=seconds, or_people=True))
        block = asyncio.ensure_future(self.wait_for_block(request, seconds=seconds))
        try:
            await asyncio.wait({end, block}, return_when=asyncio.FIRST_COMPLETED)
            if not end.done() and (running := await block) is not None:
                return running
            return await end
        finally:
            end.cancel()
            block.cancel()

    async def wait_for_block(self, request: TurnRequest, *, seconds: float) -> Turn | None:
        """Wait until a queued turn stands behind a turn that waits for answers.

        Returns:
            The turn that waits; None when the queued turn runs, or the time is over.
        """
        deadline = time.monotonic() + seconds
        pause = FIRST_POLL_SECONDS
        while request.policy == "queue" and (remaining_seconds := deadline - time.monotonic()) > 0:
            await asyncio.sleep(min(pause, remaining_seconds))
            pause = min(pause * 2, MAX_POLL_SECONDS)
            with suppress(StateError):
                session = await self.documents.session(request.agent, request.session_id)
                if session is None or session.running is None:
                    continue
                if session.running == request.turn_id:
                    return None
                if request.turn_id not in session.queue:
                    continue
                running = await self._poll(
                    session.running,
                    lambda turn: turn.outcome is not None or bool(turn.pending),
                    seconds=remaining_seconds,
                    first_poll_seconds=AFTER_HINT_SECONDS,
                )
                if running is not None and running.pending:
                    return running
                pause = FIRST_POLL_SECONDS
        return None

    async def can_read(self, request: TurnRequest) -> bool:
        """Return whether the caller may read a turn."""
        access = self.context.access
        if not access.is_restricted or access.owner == request.session_owner:
            return True
        owner = (await self.documents.lookup(request.agent, request.session_id)).owner
        return await access.can_access(request.agent, request.session_id, owner, exists=True, action="turn.read")

    async def admission(self, request: TurnRequest, *, seconds: float) -> TurnOutcome | None:
        """Wait until a started turn has been admitted or rejected.

        Returns:
            The outcome if the turn has ended; None when it runs, is queued, or is not known yet.
        """
        async for _ in _rounds(seconds):
            turn = await self.read(request.turn_id)
            if turn is not None and turn.outcome is not None:
                return turn.outcome
            with suppress(StateError):
                session = await self.documents.session(request.agent, request.session_id)
                if session is not None and request.turn_id in {session.running, *session.queue}:
                    return None
        return None

    async def find_steered_turn(self, request: TurnRequest) -> str:
        """Wait until the message of a steering turn is in the inbox of the session's running turn.

        Returns:
            The running turn's id; the request's own when it runs as a turn of its own, or the time is over.
        """
        async for _ in _rounds(ADMISSION_SECONDS):
            session = await self.documents.session(request.agent, request.session_id)
            if session is None or request.turn_id not in session.queue:
                break
            if session.running is not None and await self._stopper.has_message(session.running, request):
                return session.running
        return request.turn_id

    async def cancel(self, turn: Turn) -> None:
        """Ask a turn to stop. Guarantee: idempotent; a turn that ends first keeps its outcome.

        Raises:
            LogUnavailableError: the turn cannot be reached now.
        """
        await self.check_log()
        await self._stopper.stop(self._client, turn.request.agent, turn.request.session_id, turn.request.turn_id)

    async def parse_token(self, token: str) -> CallbackToken | None:
        """Parse the token of a deferred call; None when the app has not made it."""
        await self._secret.ready()
        return parse_token(self._secret, token)

    async def mark_workflow_input(self, workflow: str, run_id: str, value: Any) -> dict[str, Any]:
        """Return the input with which the app starts a run of a workflow."""
        await self._secret.ready()
        return mark_workflow_input(self._secret, workflow, run_id, value)

    async def with_digests(self, turn_id: str, replies: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return answers with what tells each from another answer to the same call."""
        await self._secret.ready()
        purpose = answer_purpose(turn_id)
        return {
            call_id: {**answer, "digest": self._secret.digest(purpose, {"call_id": call_id, **answer})}
            for call_id, answer in replies.items()
        }

    async def submit_replies(self, turn: Turn, replies: Mapping[str, Mapping[str, Any]], *, seconds: float) -> Turn:
        """Record answers to calls, whether or not they wait yet, and wait until the turn has taken them.

        Args:
            turn: has not ended.
            replies: with their digests.
            seconds: how long to wait; 0 for calls that may not wait yet, or whose answers were recorded before.

        Returns:
            The turn afterwards, with the recorded answers; of several answers to a call, the first one counts. Answers
            that it did not take in this time are left out, unless they differ from the recorded ones.
        """
        travels = await self.storage.store_replies(turn.request, replies)
        recorded = await self._stopper.record_replies(turn, travels)
        turn_id = turn.request.turn_id
        purpose = answer_purpose(turn_id)
        payload = [self._secret.mark(purpose, {"call_id": call_id, **answer}) for call_id, answer in recorded.items()]
        try:
            await self._client.raise_event(turn_id, REPLIES_EVENT, payload)
        except Exception:  # the SDK has no type for an orchestration that has ended
            if await self.is_at_work(turn_id):
                raise

        def has_received(turn: Turn) -> bool:  # a turn takes all answers of an event at once, and shows the newest
            waiting_ids = [call["call_id"] for call in turn.pending]
            shows_all_calls = turn.outcome is None and len(waiting_ids) < MAX_VISIBLE
            return not replies.keys().isdisjoint(turn.replies) or (
                shows_all_calls and replies.keys().isdisjoint(waiting_ids)
            )

        changed_turn = await self._poll(
            turn_id, lambda turn: turn.outcome is not None or has_received(turn), seconds=seconds
        )
        turn = changed_turn or turn
        is_received = not seconds or has_received(turn)
        merged_replies = {
            call_id: answer
            for call_id, answer in recorded.items()
            if is_received or answer["digest"] != replies[call_id]["digest"]
        }
        return replace(turn, replies={**merged_replies, **turn.replies})

    async def recorded_replies(self, turn: Turn) -> dict[str, Mapping[str, Any]]:
        """Read the answers to a turn's calls that are recorded, whether or not the turn has taken them."""
        request = turn.request
        replies = await self._stopper.read_replies(request.agent, request.session_id, request.turn_id)
        return {reply["call_id"]: reply for reply in replies if "progress" not in reply}

    async def list_waiting(
        self, cursor: str, workflows: Iterable[str]
    ) -> tuple[list[Turn], list[tuple[str, str]], str]:
        """List the turns with pending calls that exist for the request, and the runs of workflows that may wait.

        Returns:
            A page of turns, which can be short or empty; the workflows and ids of runs, whosever they are; and the
            cursor of the next page, which is empty at the end.
        """
        workflow_names = {orchestration_name(workflow): workflow for workflow in workflows}
        names = {TURN_ORCHESTRATION, *workflow_names}
        invalid_cursor = RequestError(
            "'cursor' is not what this route has returned: leave it out to get the first page"
        )
        if not cursor.isprintable():  # it becomes a header
            raise invalid_cursor
        try:
            instances, following = await waiting_instances(self._client, names, cursor)
        except ClientResponseError as error:
            if not cursor or error.status != HTTPStatus.BAD_REQUEST:
                raise
            raise invalid_cursor from None
        turns: list[Turn] = []
        runs: list[tuple[str, str]] = []
        for name, instance_id in instances:
            if name != TURN_ORCHESTRATION:
                if "::" not in instance_id:  # that is a workflow inside another, whose run lists its questions
                    runs.append((workflow_names[name], instance_id))
                continue
            with suppress(CorruptStateError):  # its own route says what is damaged
                turn = await self.read(instance_id)
                if turn is not None and turn.pending:
                    request = turn.request
                    turns += filter(None, [await self.find(request.agent, request.session_id, instance_id)])
        return turns, runs, following

    async def show_progress(self, turn: Turn, call_id: str, progress: Mapping[str, Any]) -> None:
        """Show how far the job of a deferred call is, in the turn's pending call, at once or when it begins to wait."""
        redactor = self.storage.find_redactor(turn.request.agent)
        text = progress["text"]
        if redactor is not None:
            text = await redact_in_thread(redactor, lambda: redactor.text(text))
        fields = {"text": text, "fraction": progress["fraction"], "at": datetime.now(UTC).isoformat()}
        if any(call["call_id"] == call_id for call in turn.pending):
            payload = {"call_id": call_id, "progress": fields}
            await self._client.raise_event(turn.request.turn_id, REPLIES_EVENT, payload)
        else:
            slot = int(time.time() / PROGRESS_SECONDS)
            await self._stopper.record_progress(turn.request, call_id, fields, slot)

    async def wait_for_calls(self, turn_id: str, call_ids: AbstractSet[str]) -> Turn | None:
        """Wait until a turn shows calls as pending or answered: clients learn of them a moment earlier, from events.

        Returns:
            The turn's state then, or None when it does not exist.
        """
        changed_turn = await self._poll(
            turn_id,
            lambda turn: turn.outcome is not None or bool(turn.pending) or call_ids <= turn.replies.keys(),
            seconds=_PENDING_VISIBLE_SECONDS,
        )
        return changed_turn or await self.read(turn_id)

    async def _poll(
        self,
        turn_id: str,
        is_enough: Callable[[Turn], bool],
        *,
        seconds: float,
        first_poll_seconds: float = FIRST_POLL_SECONDS,
        max_poll_seconds: float = MAX_POLL_SECONDS,
    ) -> Turn | None:
        deadline = time.monotonic() + seconds
        pause = first_poll_seconds
        with self._wakeups.waiter(turn_id) as hint:
            while (remaining_seconds := deadline - time.monotonic()) > 0:
                try:
                    await asyncio.wait_for(hint.wait(), min(pause, remaining_seconds))
                except TimeoutError:
                    pause = min(pause * 1.5, max_poll_seconds)
                else:
                    hint.clear()
                    pause = AFTER_HINT_SECONDS
                turn = await self.read(turn_id)
                if turn is not None and is_enough(turn):
                    return turn
        return None

    async def is_at_work(self, instance_id: str) -> bool:
        """Return whether there is an orchestration of this id that has not ended."""
        return not await has_ended(self._client, instance_id)

    async def check_log(self) -> None:
        """Check that the turn log is writable; raises `LogUnavailableError`."""
        await self._probes.check_log()

    async def find_problems(self) -> dict[str, Exception | None]:
        """Check which stores are writable; see `StoreProbes.find_problems`."""
        return await self._probes.find_problems(self._client)


ClientFor = Callable[[RequestContext], TurnClient]
"""Makes the turn client of a request, once its context is known."""


def is_store_error(error: BaseException) -> bool:
    """Return whether an error of the SDK's client means that the durable store is full, gone or does not answer.

    The SDK has no type for it, and puts the status or the answer into the text.
    """
    if isinstance(error, ClientConnectionError):
        return True
    return type(error) is Exception and _STORE_ERROR.search(str(error)) is not None


_TRANSIENT_TYPES: Final = frozenset({LOG_UNAVAILABLE, "QueueFullError", "TurnRejectedError"})
"""Of the errors of rejected turns, those that may be gone when the same key comes again."""
