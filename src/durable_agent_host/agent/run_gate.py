"""Whether a run may do new work: it was stopped, or calls wait for a person."""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from durable_agent_host.agent.budget_accounting import APPROVAL_NAME, BudgetAccount
from durable_agent_host.agent.observer import ApprovalRequested, ObserverGroup
from durable_agent_host.agent.run_result import AwaitingApproval, Cancelled, Failed, RunStoppedError, Stop
from durable_agent_host.agent.tool_invocation import ToolInvocation
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.tool_calls import APPROVED_BY
from durable_agent_host.turn.pending_approvals import approval_request_id
from durable_agent_host.turn_log.journal import Journal

_LOGGER = logging.getLogger(__name__)
_CHANGED: Final = "an approver has changed the arguments, and somebody else must approve them"


@dataclass(frozen=True)
class ApprovalDecision:
    """What people have decided about a call.

    Attributes:
        is_approved: whether it may run.
        arguments: instead of the model's, or None.
        reason_text: the reason of a denial, as the end of a sentence; or empty.
    """

    is_approved: bool
    arguments: Mapping[str, Any] | None = None
    reason_text: str = ""


class ApprovalRequests:
    """Asks people about the calls of one run.

    Args:
        turn_id: the run's turn.
        decisions: people's decisions, by the question's id.
        journal: of the run.
        observers: notified of each question.

    Attributes:
        pending: the calls that wait for a person.
    """

    def __init__(
        self, turn_id: str, decisions: Mapping[str, Mapping[str, Any]], journal: Journal, observers: ObserverGroup
    ) -> None:
        self.pending: list[dict[str, Any]] = []
        self._turn_id = turn_id
        self._decisions = decisions
        self._journal = journal
        self._observers = observers

    def decision(self, question: str) -> Mapping[str, Any] | None:
        """Return a person's decision; None when there is none yet."""
        return self._decisions.get(question)

    async def decide(self, call: ToolInvocation, number: int, reason: str) -> ApprovalDecision | None:
        """Look up the answer to a question about a call, or ask it.

        Where the tool says who must approve, arguments that an approver has changed are asked about again.

        Args:
            call: with the arguments that are asked about.
            number: of the question among those about this call, from 0.
            reason: why a person must decide.

        Returns:
            The decision; None when there is none yet.
        """
        approved_by = (call.tool.additional_properties or {}).get(APPROVED_BY)
        arguments = call.arguments
        changes = 0
        changed_by = None
        while True:
            question = self.question_id(call.path, number, changes)
            answer = self.decision(question)
            if answer is None:
                whom = {"approved_by": approved_by, "changed_by": changed_by}
                await self.ask(
                    question, call.path.call_id, call.name, arguments, _CHANGED if changes else reason, **whom
                )
                return None
            if answer.get("approved") is not True:
                return ApprovalDecision(
                    is_approved=False, reason_text=f" Reason: {answer['reason']}" if answer.get("reason") else ""
                )
            changed_arguments = answer.get("arguments")
            if changed_arguments is None or _is_same_value(changed_arguments, arguments):
                return ApprovalDecision(is_approved=True, arguments=arguments if changes else None)
            if approved_by is None:
                return ApprovalDecision(is_approved=True, arguments=changed_arguments)
            arguments = changed_arguments
            changes = changes + 1
            changed_by = answer.get("by")

    def question_id(self, path: CallPath, number: int = 0, changes: int = 0) -> str:
        """Return the id of a question about a call; see `durable_agent_host.turn.pending_approvals`."""
        return approval_request_id(path, number, changes, is_repeated=self._journal.is_repeated(path))

    async def ask_for_budget(self, question: str, figures: Mapping[str, Any], sentence: str) -> None:
        """Ask a person whether a turn may spend more; the run stops before its next model call."""
        await self.ask(question, question, APPROVAL_NAME, figures, sentence)

    async def ask(
        self,
        question: str,
        call_id: str,
        name: str,
        arguments: Mapping[str, Any],
        reason: str,
        *,
        approved_by: str | None = None,
        changed_by: Mapping[str, Any] | None = None,
    ) -> None:
        """Leave a tool call to a person: the run finishes the other calls of the batch, then stops."""
        pending_call: dict[str, Any] = {
            "call_id": question,
            "name": name,
            "arguments": dict(arguments),
            "reason": reason,
        }
        pending_call |= {"approved_by": approved_by} if approved_by is not None else {}
        pending_call |= {"changed_by": changed_by} if changed_by else {}
        self.pending.append(pending_call)
        await self._observers.notify(
            ApprovalRequested(pending_call, replayed=question in self._journal.recorded.requested_approval_ids)
        )
        _LOGGER.info("turn %s: call %s of %s waits for a person", self._turn_id, call_id, name)


class RunGate:
    """Lets new work of one run through, or stops the run.

    Args:
        approvals: of the run.
        account: counts the turn's usage; None without budgets.
        replay_only: the turn was cancelled before this run: nothing outside the journal is done.

    Attributes:
        gave_up: set when the run's results are no longer wanted; tools can check it from their threads.
    """

    def __init__(self, approvals: ApprovalRequests, account: BudgetAccount | None, *, replay_only: bool) -> None:
        self.gave_up = threading.Event()
        self._approvals = approvals
        self._account = account
        self._replay_only = replay_only
        self._stop: Stop | None = None

    def stop(self, stop: Stop) -> None:
        """Stop new work; safe from any thread."""
        self._stop = stop
        self.gave_up.set()

    def raise_if_stopped(self) -> None:
        """Allow no more work once the run was stopped.

        Raises:
            RunStoppedError: the run was stopped.
        """
        if self._stop is not None:
            raise RunStoppedError(self._stop)

    def raise_if_cancelled(self) -> None:
        """Allow no work outside the journal when the turn was cancelled before the run.

        Raises:
            RunStoppedError: it was.
        """
        if self._replay_only:
            raise RunStoppedError(Cancelled())

    def raise_if_waiting(self) -> None:
        """Start no model call while calls wait for a person.

        Raises:
            RunStoppedError: some calls wait, or a budget ends the turn.
        """
        if self._approvals.pending:
            self.raise_if_cancelled()
            raise RunStoppedError(AwaitingApproval(tuple(self._approvals.pending)))
        if self._account is not None and self._account.failure is not None:
            raise RunStoppedError(Failed(self._account.failure))

    def check(self) -> None:
        """Allow new work only while the run is wanted.

        Raises:
            RunStoppedError: the run was stopped, was cancelled before it started, or waits for a person.
        """
        self.raise_if_stopped()
        self.raise_if_cancelled()
        self.raise_if_waiting()


def _is_same_value(left: Any, right: Any) -> bool:
    """Compare JSON by value: ``1`` and ``1.0`` are the same number, ``true`` is none."""
    if isinstance(left, dict) and isinstance(right, dict):
        left_fields = cast("dict[str, Any]", left)
        right_fields = cast("dict[str, Any]", right)
        return left_fields.keys() == right_fields.keys() and all(
            _is_same_value(value, right_fields[name]) for name, value in left_fields.items()
        )
    if isinstance(left, list) and isinstance(right, list):
        left_items = cast("list[Any]", left)
        right_items = cast("list[Any]", right)
        return len(left_items) == len(right_items) and all(map(_is_same_value, left_items, right_items))
    return left == right and isinstance(left, bool) == isinstance(right, bool)
