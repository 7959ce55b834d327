"""Budgets of model calls: each is reserved before it is sent, and counted by what it returns."""

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, cast

from agent_framework import ChatResponseUpdate

from durable_agent_host.agent.budget_accounting import BudgetAccount
from durable_agent_host.agent.model_call import ModelCall, ModelStream, NextModelCall
from durable_agent_host.agent.response_limits import OutputCounter, count_output_characters
from durable_agent_host.model.budget import is_measured, known_counts


class CountUsage:
    """Counts the calls of one run in its account, which has admitted them.

    Args:
        account: of the run.
    """

    def __init__(self, account: BudgetAccount) -> None:
        self._account = account

    async def __call__(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Reserve a call, and count it; one that was rejected without content is released."""
        account = self._account
        key = call.position, call.index
        counter = OutputCounter(call.provider)
        has_content = is_streamed = False
        await account.reserve(*key)
        try:
            async with aclosing(call_next(call)) as items:
                async for item in items:
                    if isinstance(item, ChatResponseUpdate):
                        is_streamed = True
                        has_content = has_content or bool(item.contents)
                        counter.add(item)
                        account.add_output(*key, counter.characters, item.model, is_open=True)
                    else:
                        usage = known_counts(cast("Mapping[str, Any] | None", item.response.usage_details)) or None
                        if not is_streamed:
                            account.add_output(*key, count_output_characters(item.response), item.response.model)
                        if not is_measured(usage):
                            account.journal_output(*key)
                        account.commit(*key, usage, item.response.model)
                    yield item
        except BaseException as error:
            account.broke_off(*key)
            if isinstance(error, Exception) and not has_content:
                await account.release(*key)
            raise
