"""All features, in the order of their layers; the only module that names each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent_framework import CompactionStrategy, SupportsAgentRun

from durable_agent_host.agent.feature import AgentFeature
from durable_agent_host.agent.hosted_agent import why_no_journal
from durable_agent_host.agent.provider import ProviderFor
from durable_agent_host.app_functions import as_list
from durable_agent_host.durable.function_registration import AppFeature
from durable_agent_host.features.budgets.feature import BudgetsOfAgent
from durable_agent_host.features.budgets.options import choose_budgets, default_budgets
from durable_agent_host.features.compaction.feature import CompactionOfAgent, check_strategy, choose_compaction
from durable_agent_host.features.fallback import clients as fallback
from durable_agent_host.features.fallback.feature import Fallbacks, choose_fallbacks
from durable_agent_host.features.histories.feature import Histories
from durable_agent_host.features.histories.providers import history_providers
from durable_agent_host.features.notifications.delivery import NOTIFY_ORCHESTRATION, notifications
from durable_agent_host.features.notifications.notification import Notify
from durable_agent_host.features.pending_calls.feature import PendingKinds
from durable_agent_host.features.response_format.feature import ResponseFormats, choose_response_retries
from durable_agent_host.features.steering import feature as steering
from durable_agent_host.features.steering.feature import Steering
from durable_agent_host.model.budget import Budgets
from durable_agent_host.settings import Settings
from durable_agent_host.turn.step_types import ShowEntry

FEATURE_ORCHESTRATIONS: Final = frozenset({NOTIFY_ORCHESTRATION})
"""The names of the orchestrations of all features, used or not: what has ended expires."""
FEATURE_VIEWS: Final[Mapping[str, ShowEntry]] = {
    fallback.NAME: fallback.show_switch,
    steering.NAME: steering.show_message,
}
"""How the steps of a turn show the entries of features."""


def app_features(notify: Notify | str | None, settings: Settings) -> list[AppFeature]:
    """Return what the features add to an app, by its arguments.

    Raises:
        RegistrationError: an argument is invalid.
        SettingError: so is a setting that it needs.
    """
    return [feature for feature in (notifications(notify, settings),) if feature is not None]


@dataclass(frozen=True)
class Choices:
    """What an app chooses for one agent, or for all: the arguments of `DurableAgentApp`; None: nothing."""

    budgets: Budgets | None
    compaction: CompactionStrategy | None
    fallbacks: Sequence[Any] | None
    response_retries: int | None


def activity_features(agent: SupportsAgentRun, compaction: CompactionOfAgent | None = None) -> list[AgentFeature]:
    """Return the features of an agent in an activity of the app's own, where nothing is chosen."""
    return [
        compaction or CompactionOfAgent(),
        PendingKinds(),
        *([Histories(agent)] if history_providers(agent) else []),
    ]


class FeatureChoices:
    """Makes the features of an app's agents.

    Args:
        choices: for agents without choices of their own.
    """

    def __init__(self, choices: Choices) -> None:
        check_strategy(choices.compaction, "the app")
        self._budgets = default_budgets(choices.budgets)
        self._compaction = choices.compaction
        self._fallbacks = as_list("fallbacks", choices.fallbacks)
        self._response_retries = choices.response_retries

    def features(
        self, name: str, agent: SupportsAgentRun, choices: Choices, provider_for: ProviderFor
    ) -> list[AgentFeature]:
        """Return the features of an agent, by its own choices and the app's.

        Raises:
            RegistrationError: a choice is invalid.
        """
        retries = choose_response_retries(choices.response_retries, self._response_retries)
        budgets = choose_budgets(name, agent, choices.budgets, self._budgets)
        compaction = choose_compaction(name, choices.compaction, self._compaction, why_no_journal(agent))
        fallbacks = choose_fallbacks(name, agent, choices.fallbacks, default=self._fallbacks, provider_for=provider_for)
        return [
            ResponseFormats(agent, retries),
            *([Fallbacks(fallbacks, provider_for)] if fallbacks else []),
            *([BudgetsOfAgent(budgets)] if budgets.counts else []),
            Steering(),
            *activity_features(agent, compaction),
        ]
