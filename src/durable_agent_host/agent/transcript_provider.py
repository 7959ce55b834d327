"""The stored conversation as the history of a framework agent."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import AgentSession, HistoryProvider, Message, SessionContext, SupportsAgentRun

from durable_agent_host.codec.content import decode_agent_session
from durable_agent_host.model.turn import TurnRequest

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
