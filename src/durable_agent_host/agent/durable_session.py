"""The framework's session of a run: the conversation that it carries, the app's state in it, what the service has lost.

Tools, middleware and context providers of the app keep values in ``session.state``. A replayed run begins with the
state from before the turn, and finished calls do not run again; so when the journal answers them, their changes are
restored, in the order in which they ended. Only changed values are written, by name.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import AgentSession, HistoryProvider, Message, SessionContext, SupportsAgentRun

from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.agent.run_result import Failed, RunStoppedError
from durable_agent_host.codec.content import decode_agent_session, plain_json
from durable_agent_host.errors import CorruptStateError, InvalidAnswerError
from durable_agent_host.model.call_path import TURN_AGENT, CallPath
from durable_agent_host.model.provider_item import LostState
from durable_agent_host.model.session import WORKFLOW_STATE
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.turn_log.journal import JournalState

_LOGGER = logging.getLogger(__name__)
_STORING_SERVICE: Final = "durable_agent_host.kept_by_service"
"""Key in the session's state: the class of the provider whose service keeps the conversation."""


class DurableSession(AgentSession):
    """A framework session that carries the rehydrated conversation into one run.

    Attributes:
        transcript: messages of earlier turns, oldest first; empty when the model's service keeps them.
        turn_id: the run's turn; the same when the turn is retried.
        input_messages: the input of the turn's first run, as the agent's middleware left it; empty before.
    """

    transcript: Sequence[Message] = ()
    input_messages: Sequence[Message] = ()
    turn_id: str | None = None

    @classmethod
    def restore(
        cls, session_json: Mapping[str, Any] | None, request: TurnRequest, history_session_id: str = ""
    ) -> "DurableSession":
        """Return the session of a run."""
        new_id = history_session_id or request.session_id
        durable_session = cls(session_id=new_id) if session_json is None else decode_agent_session(session_json, cls)
        durable_session.turn_id = request.turn_id
        return durable_session

    @property
    def lost_state(self) -> dict[str, Any]:
        """What of the conversation the model's service can no longer use, in the format of the provider's adapter."""
        return dict(cast("dict[str, Any]", self.state.get(TranscriptProvider.SOURCE_ID) or {}))

    @lost_state.setter
    def lost_state(self, lost_state: Mapping[str, Any]) -> None:
        """Store it with the session."""
        self.state[TranscriptProvider.SOURCE_ID] = dict(lost_state)

    def set_storing_service(self, provider: object) -> None:
        """Store with the session which service keeps the conversation, if any."""
        self.state.pop(_STORING_SERVICE, None)
        if self.service_session_id:
            self.state[_STORING_SERVICE] = type(provider).__name__

    def leave_other_service(self, provider: object) -> None:
        """Continue from the transcript when another provider's service keeps the conversation so far."""
        if (
            self.service_session_id
            and self.state.get(_STORING_SERVICE, type(provider).__name__) != type(provider).__name__
        ):
            self.service_session_id = None


class TranscriptProvider(HistoryProvider):
    """Puts a `DurableSession`'s transcript before the new message.

    The messages are added without the framework's attribution mark, because the OpenAI client replaces the provider's
    own item ids of marked messages (agent-framework-openai 1.17, ``_prepare_content_for_openai``): the model then sees
    the ids that it produced. Nothing is saved here; the session's entity keeps the conversation.
    """

    SOURCE_ID = "durable_agent_host"

    def __init__(self) -> None:
        super().__init__(self.SOURCE_ID, load_messages=True, store_inputs=False, store_outputs=False)

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """Return no messages: `before_run` takes them from the run's session."""
        del session_id, state, kwargs
        return []

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Save nothing: the session's entity keeps the conversation."""
        del session_id, messages, state, kwargs

    async def before_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Put the transcript of the run's session first."""
        del agent, state
        if not isinstance(session, DurableSession):
            return
        session.input_messages = session.input_messages or list(context.input_messages)
        if session.transcript:
            context.context_messages[self.source_id] = list(session.transcript)


_HOST_KEYS: Final = frozenset({TranscriptProvider.SOURCE_ID, WORKFLOW_STATE})
_TRIES: Final = 5
"""How often a state is read while a tool changes it."""


class SessionState:
    """Tracks what the steps of one run change in the session's state.

    Args:
        session: of the run, with the state from before the turn.
        records: changes recorded by earlier runs.
        path: of the run.
    """

    def __init__(self, session: AgentSession, records: JournalState, path: CallPath = TURN_AGENT) -> None:
        self._session = session
        self._records = records
        self._path = path
        self._applied_count = 0
        self._texts_by_name = self._texts()

    def changes(self) -> dict[str, Any] | None:
        """Return what has changed since the last step.

        Returns:
            ``set`` with values by name and ``removed`` with names, each when there are some; None without a change.

        Raises:
            RunStoppedError: the state holds a value that JSON cannot represent; the turn fails.
        """
        now = self._texts()
        new_values = {name: json.loads(text) for name, text in now.items() if self._texts_by_name.get(name) != text}
        removed_names = sorted(self._texts_by_name.keys() - now.keys())
        self._texts_by_name = now
        found = {"set": new_values, "removed": removed_names}
        return {key: value for key, value in found.items() if value} or None

    def restore(self, path: CallPath) -> None:
        """Restore the state at the end of a call."""
        ended_at = self._records.finished_at.get(path, -1)
        changes = self._records.state_changes.get(self._path, [])
        while self._applied_count < len(changes) and changes[self._applied_count][0] <= ended_at:
            self._apply(changes[self._applied_count][1])
            self._applied_count += 1

    def _apply(self, change: Mapping[str, Any]) -> None:
        values: dict[str, Any] = dict(change.get("set") or {})
        session_json = {"session_id": self._session.session_id, "state": values}
        self._session.state.update(AgentSession.from_dict(session_json).state)
        self._texts_by_name |= {name: _text(value) for name, value in values.items()}
        for name in change.get("removed") or ():
            self._session.state.pop(name, None)
            self._texts_by_name.pop(name, None)

    def _texts(self) -> dict[str, str]:
        for _ in range(_TRIES - 1):
            try:
                return self._read()
            except RuntimeError:  # a tool in a thread changed it at the same time
                continue
        return self._read()

    def _read(self) -> dict[str, str]:
        try:
            state: dict[str, Any] = cast("Any", self._session.to_dict())["state"]
            return {
                name: _text(plain_json(value, path=f"session.state[{name!r}]"))
                for name, value in state.items()
                if name not in _HOST_KEYS
            }
        except (CorruptStateError, TypeError, ValueError, RecursionError) as error:
            message = f"the turn's state in the session cannot be stored: {error}"
            raise RunStoppedError(Failed(InvalidAnswerError(message))) from error


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class LostProviderState:
    """The losses of one attempt; after each, the agent is run again from the stored transcript.

    Args:
        turn_id: for log lines.
    """

    def __init__(self, turn_id: str) -> None:
        self._turn_id = turn_id
        self._lost: list[LostState] = []
        self._marked_count = 0
        self._lost_state: dict[str, Any] = {}
        self.request_messages: Sequence[Message] = ()

    def __len__(self) -> int:
        """Return how many requests the service refused because of a loss."""
        return len(self._lost)

    def add(self, loss: LostState, session: DurableSession, provider: ModelProvider) -> bool:
        """Record a loss.

        Returns:
            Whether another run can do without it: the loss is new, also to the session, and the run had used it.
        """
        has_continuation = bool(session.service_session_id or WORKFLOW_STATE in session.state)
        if loss.kind in {"field", "files"}:
            if provider.carry(self.request_messages, session.lost_state, [loss])[1] == session.lost_state:
                return False  # the request was made without it
        elif loss in self._lost or (loss.kind == "continuation" and not (has_continuation or loss.name)):
            return False
        _LOGGER.warning("turn %s: %s; resuming from the stored transcript", self._turn_id, loss.reason)
        self._lost.append(loss)
        return True

    def clear_continuation(self, session: DurableSession) -> None:
        """Remove the service's continuation from a session once something was lost."""
        if self._lost:
            session.service_session_id = None
            session.state.pop(WORKFLOW_STATE, None)

    def mark(
        self, messages: Sequence[Message], session: DurableSession, provider: ModelProvider, *, is_request: bool = False
    ) -> list[Message]:
        """Mark what the service can no longer use in messages; the session remembers it."""
        lost_state = {**session.lost_state, **self._lost_state}
        new_losses = [loss for loss in self._lost[self._marked_count :] if is_request or loss.kind != "files"]
        marked_messages, session.lost_state = provider.carry(messages, lost_state, new_losses)
        if is_request:
            self._marked_count = len(self._lost)
            self._lost_state = session.lost_state
        return marked_messages
