"""Turns and sessions, as the HTTP routes see them: start, wait, read."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any

from azure.durable_functions import DurableOrchestrationClient, EntityId, OrchestrationRuntimeStatus

from durable_agent_host.codec.content import decode_usage
from durable_agent_host.codec.message import decode_messages, decode_response
from durable_agent_host.codec.state import decode_session
from durable_agent_host.codec.turn import decode_turn_outcome, decode_turn_request, encode_turn_request
from durable_agent_host.codec.waiting import decode_waiting
from durable_agent_host.durable.documents import SessionDocuments
from durable_agent_host.durable.orchestrator import APPROVAL_EVENT, TURN_ORCHESTRATION
from durable_agent_host.durable.tend import TurnStopper
from durable_agent_host.durable.wakeups import Wakeups
from durable_agent_host.errors import IdempotencyKeyReusedError, StateError, TurnTimedOutError
from durable_agent_host.model.ids import entity_name
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import Turn, TurnOutcome, TurnRequest, TurnStats

FIRST_LOOK_SECONDS = 0.05
SLOWEST_LOOK_SECONDS = 1.0
AFTER_HINT_SECONDS = 0.001
AFTER_RUN_SECONDS = 0.05


class TurnClient:
    """Starts, waits for, reads, cancels and answers turns, with the durable client of one request.

    Args:
        client: the SDK's, bound to the request's function.
        wakeups: in-process hints.
        stopper: tells turns to stop.

    Attributes:
        documents: the sessions as they are stored.
    """

    def __init__(
        self, client: DurableOrchestrationClient, wakeups: Wakeups, stopper: TurnStopper | None = None
    ) -> None:
        self._client = client
        self._wakeups = wakeups
        self._stopper = stopper or TurnStopper()
        self.documents = SessionDocuments(client)

    async def start(self, request: TurnRequest) -> None:
        """Start a turn's orchestration.

        Guarantee: idempotent by the turn's id: when it is there already, nothing is started.

        Args:
            request: what was asked.
        """
        try:
            await self._client.start_new(TURN_ORCHESTRATION, request.turn_id, encode_turn_request(request))
        except Exception:
            if await self.read(request.turn_id) is None:
                raise

    async def start_once(self, request: TurnRequest, key: str) -> Turn | None:
        """Start a turn whose client may have asked before, under the same key.

        A turn that has ended is found by its orchestration or, when that has been purged, by its receipt.

        Guarantee: idempotent by the turn's id.

        Args:
            request: what was asked, with its hash.
            key: the client's, by which the turn's id was made.

        Returns:
            The turn when it has ended before, else None: it is under way.

        Raises:
            IdempotencyKeyReusedError: the key came before with another request; nothing was started.
        """
        known = await self.find(request.agent, request.session_id, request.turn_id)
        if known is None:
            await self.start(request)
            known = await self.read(request.turn_id)  # of several at once one has started it, perhaps with another body
        if known is not None and not _is_same(known.request, request):
            raise IdempotencyKeyReusedError(
                f"Idempotency-Key {key!r} was used for another request: send the same body again, or another key"
            )
        return known if known is not None and known.outcome is not None else None

    async def read(self, turn_id: str) -> Turn | None:
        """Read a turn as it is now.

        Args:
            turn_id: which turn.

        Returns:
            The turn, or None when there is no such turn or it is no longer kept.
        """
        status = await self._client.get_status(turn_id, show_input=True)
        if not status or (status.name or "").casefold() != TURN_ORCHESTRATION:
            return None
        request = decode_turn_request(_parsed(status.input_))
        outcome = _outcome(request, status)
        pending, answers = decode_waiting(_parsed_status(status))
        return Turn(request=request, outcome=outcome, pending=() if outcome else pending, answers=answers)

    async def find(self, agent: str, session_id: str, turn_id: str) -> Turn | None:
        """Read a turn of a session; one whose orchestration was purged is told from its receipt.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            turn_id: which turn.

        Returns:
            The turn, or None when the session has or remembers no such turn.
        """
        turn = await self.read(turn_id)
        if turn is None:
            try:
                session = await self.session(agent, session_id)
            except StateError:
                return None
            return kept_turn(agent, session_id, turn_id, session) if session else None
        return turn if (turn.request.agent, turn.request.session_id) == (agent, session_id) else None

    def hint(self, turn_id: str) -> None:
        """Tell the waiters of this process that the agent is done with a turn.

        Its orchestration tells them itself when it ends in this process; it may run in another one.

        Args:
            turn_id: which turn; a wrong hint costs some looks.
        """
        asyncio.get_running_loop().call_later(AFTER_RUN_SECONDS, self._wakeups.notify, turn_id)

    async def wait(
        self,
        turn_id: str,
        *,
        seconds: float,
        or_people: bool = False,
        first_look_seconds: float = FIRST_LOOK_SECONDS,
        slowest_look_seconds: float = SLOWEST_LOOK_SECONDS,
    ) -> Turn:
        """Wait until a turn has ended.

        The waiter is woken in-process just before the end is committed and looks again at once, a little later, and
        so on; where no hint can come (the turn runs elsewhere), it looks ever less often.

        Args:
            turn_id: which turn.
            seconds: how long at the most.
            or_people: come back also when the turn waits for a person.
            first_look_seconds: after how long it looks for the first time without a hint.
            slowest_look_seconds: how seldom it looks in the end.

        Returns:
            The turn with its outcome; or, when asked for, with the calls that wait.

        Raises:
            TurnTimedOutError: it has not ended; it goes on.
        """
        turn = await self._look(
            turn_id,
            lambda turn: turn.outcome is not None or (or_people and bool(turn.pending)),
            seconds=seconds,
            first_look_seconds=first_look_seconds,
            slowest_look_seconds=slowest_look_seconds,
        )
        if turn is None:
            raise TurnTimedOutError(
                f"turn {turn_id} is still running after {seconds:g} s; it goes on: ask for it again"
            )
        return turn

    async def cancel(self, turn: Turn) -> None:
        """Ask a turn to stop. Guarantee: idempotent; when it ends meanwhile, that end holds.

        Args:
            turn: as it was read.
        """
        await self._stopper.stop(self._client, turn.request.agent, turn.request.session_id, turn.request.turn_id)

    async def answer(self, turn: Turn, answers: Mapping[str, Mapping[str, Any]], *, seconds: float) -> Turn:
        """Answer calls that wait for a person, and wait until the turn has taken note.

        Args:
            turn: as it was read, with the calls among those that wait.
            answers: by call id.
            seconds: how long to wait.

        Returns:
            The turn afterwards; of several different answers to a call it has the one that came first.
        """
        payload = [{"call_id": call_id} | dict(answer) for call_id, answer in answers.items()]
        turn_id = turn.request.turn_id
        with suppress(Exception):  # the SDK has no type for an orchestration that has ended meanwhile
            await self._client.raise_event(turn_id, APPROVAL_EVENT, payload)
        noted = await self._look(
            turn_id, lambda turn: turn.outcome is not None or answers.keys() <= turn.answers.keys(), seconds=seconds
        )
        return noted or turn

    async def wait_for_calls(self, turn_id: str, call_ids: AbstractSet[str], *, seconds: float) -> Turn | None:
        """Wait until calls of a turn wait for a person or are answered: clients hear of them a moment before.

        Args:
            turn_id: which turn.
            call_ids: of the calls.
            seconds: how long at the most.

        Returns:
            The turn as it is then, or None when there is none.
        """
        known = await self._look(
            turn_id,
            lambda turn: (
                turn.outcome is not None
                or call_ids <= {*turn.answers, *(call["call_id"] for call in turn.pending)}
                or bool(turn.pending)
            ),
            seconds=seconds,
        )
        return known or await self.read(turn_id)

    async def _look(
        self,
        turn_id: str,
        is_enough: Callable[[Turn], bool],
        *,
        seconds: float,
        first_look_seconds: float = FIRST_LOOK_SECONDS,
        slowest_look_seconds: float = SLOWEST_LOOK_SECONDS,
    ) -> Turn | None:
        deadline = time.monotonic() + seconds
        pause = first_look_seconds
        with self._wakeups.waiter(turn_id) as hint:
            while (left := deadline - time.monotonic()) > 0:
                try:
                    await asyncio.wait_for(hint.wait(), min(pause, left))
                except TimeoutError:
                    pause = min(pause * 1.5, slowest_look_seconds)
                else:
                    hint.clear()
                    pause = AFTER_HINT_SECONDS
                turn = await self.read(turn_id)
                if turn is not None and is_enough(turn):
                    return turn
        return None

    async def session(self, agent: str, session_id: str) -> Session | None:
        """Read a session.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.

        Returns:
            The session, or None when it has not begun.

        Raises:
            StateError: it cannot be read.
        """
        state = await self._client.read_entity_state(EntityId(entity_name(agent), session_id))
        return decode_session(state.entity_state) if state.entity_exists else None

    async def check_store(self) -> None:
        """Ask the durable store for a turn that does not exist; raises what the store raises."""
        await self._client.get_status("health")


def kept_turn(agent: str, session_id: str, turn_id: str, session: Session) -> Turn | None:
    """Tell of a turn without an orchestration from what its session has kept: how it ended, or that it waits.

    Guarantee: pure.

    Args:
        agent: the agent's registered name.
        session_id: without the agent's name.
        turn_id: which turn.
        session: where to look.

    Returns:
        The turn, or None when there is no receipt of it and it did not come as a signal that waits. One whose answer
        is gone has failed with the reason.
    """
    if waiting := session.requests.get(turn_id):
        return Turn(request=decode_turn_request(waiting), outcome=None)
    receipt = session.receipt_of(turn_id)
    if receipt is None:
        return None
    own = {place: entry for place, entry in enumerate(session.entries, 1) if entry.get("correlationId") == turn_id}
    found = {str(entry.get("$type")): entry for entry in own.values()}
    asked, answered = found.get("request"), found.get("response")
    status, error = receipt.status, receipt.error
    if status == "completed" and answered is None:
        error = {"type": "AnswerGoneError", "message": "this turn has ended before, and its answer is no longer kept"}
        status = "failed"
    request = TurnRequest(
        agent=agent,
        session_id=session_id,
        turn_id=turn_id,
        message=decode_messages([asked])[0].text if asked else "",
        created_at=str(asked.get("createdAt") or "") if asked else "",
        request_hash=receipt.request_hash,
    )
    response = decode_response(answered) if answered else None
    usage: Any = answered.get("usage") if answered else None
    outcome = TurnOutcome(
        turn_id,
        status,
        text=response.text if response else "",
        usage=decode_usage(usage) if usage else None,
        error=error,
        message_count=max(own, default=len(session.entries)),
        stats=receipt.stats or TurnStats(),
        request_hash=receipt.request_hash,
        ended_at=receipt.ended_at,
    )
    return Turn(request=request, outcome=outcome)


def _is_same(known: TurnRequest, request: TurnRequest) -> bool:
    """Compare by hash; a receipt keeps its beginning, and turns of callers without a key have none."""
    return not known.request_hash or request.request_hash.startswith(known.request_hash)


def _parsed_status(status: Any) -> Any:
    try:
        return _parsed(status.custom_status)
    except ValueError:
        return None


def _parsed(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _outcome(request: TurnRequest, status: Any) -> TurnOutcome | None:
    match status.runtime_status:
        case OrchestrationRuntimeStatus.Completed:
            return decode_turn_outcome(_parsed(status.output))
        case OrchestrationRuntimeStatus.Failed | OrchestrationRuntimeStatus.Canceled:
            error = {"type": "TurnError", "message": f"the turn's orchestration failed: {status.output}"[:600]}
            return TurnOutcome(request.turn_id, "failed", error=error)
        case OrchestrationRuntimeStatus.Terminated:
            error = {"type": "TurnError", "message": f"the turn was terminated: {status.output}"[:600]}
            return TurnOutcome(request.turn_id, "failed", error=error)
        case _:
            return None
