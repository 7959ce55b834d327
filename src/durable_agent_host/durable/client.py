"""Turns and sessions, as the HTTP routes see them: start, wait, read."""

import asyncio
import json
import time
from typing import Any

from azure.durable_functions import DurableOrchestrationClient, EntityId, OrchestrationRuntimeStatus

from durable_agent_host.codec.state import decode_session
from durable_agent_host.codec.turn import decode_turn_outcome, decode_turn_request, encode_turn_request
from durable_agent_host.durable.documents import SessionDocuments
from durable_agent_host.durable.orchestrator import TURN_ORCHESTRATION
from durable_agent_host.durable.wakeups import Wakeups
from durable_agent_host.errors import TurnTimedOutError
from durable_agent_host.model.ids import entity_name
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import Turn, TurnOutcome, TurnRequest

FIRST_LOOK_SECONDS = 0.05
SLOWEST_LOOK_SECONDS = 1.0
AFTER_HINT_SECONDS = 0.001


class TurnClient:
    """Starts, waits for and reads turns, with the durable client of one request.

    Args:
        client: the SDK's, bound to the request's function.
        wakeups: in-process hints.

    Attributes:
        documents: the sessions as they are stored.
    """

    def __init__(self, client: DurableOrchestrationClient, wakeups: Wakeups) -> None:
        self._client = client
        self._wakeups = wakeups
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
        return Turn(request=request, outcome=_outcome(request, status))

    async def wait(self, turn_id: str, *, seconds: float) -> Turn:
        """Wait until a turn has ended.

        The waiter is woken in-process just before the end is committed and looks again at once, a little later, and
        so on; where no hint can come (the turn runs elsewhere), it looks ever less often, at least once a second.

        Args:
            turn_id: which turn.
            seconds: how long at the most.

        Returns:
            The turn with its outcome.

        Raises:
            TurnTimedOutError: it has not ended; it goes on.
        """
        deadline = time.monotonic() + seconds
        pause = FIRST_LOOK_SECONDS
        with self._wakeups.waiter(turn_id) as hint:
            while (left := deadline - time.monotonic()) > 0:
                try:
                    await asyncio.wait_for(hint.wait(), min(pause, left))
                except TimeoutError:
                    pause = min(pause * 1.5, SLOWEST_LOOK_SECONDS)
                else:
                    hint.clear()
                    pause = AFTER_HINT_SECONDS
                turn = await self.read(turn_id)
                if turn is not None and turn.outcome is not None:
                    return turn
        raise TurnTimedOutError(f"turn {turn_id} is still running after {seconds:g} s; it goes on: ask for it again")

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
