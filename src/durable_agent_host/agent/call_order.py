"""The order of the layers of model calls, and where each gets what it needs.

The lists are built for each call, outermost layer first; a feature that a call does not use is not in its list.
"""

from durable_agent_host.agent.agent_run import AgentRun
from durable_agent_host.agent.layers.background import FetchBackgroundAnswers
from durable_agent_host.agent.layers.journal import JournalModelCalls
from durable_agent_host.agent.layers.response import ReadResponse, read_unmetered
from durable_agent_host.agent.layers.retry import RetryModelCalls
from durable_agent_host.agent.model_call import ModelCall, ModelLayer, ModelStream, NextModelCall, chain_layers
from durable_agent_host.agent.nested_model_calls import NestedCallMeter, end_turn_on_limit
from durable_agent_host.agent.response_limits import received_bytes, stream_with_timeout


def chain_model_call(run: AgentRun, call: ModelCall) -> ModelStream:
    """Make a model call of a run's agent through its layers."""
    layers: list[ModelLayer] = [
        JournalModelCalls(
            run.journal,
            run.observers,
            run.session_state,
            run.output,
            run.progress,
            bounds=run.bounds,
            drop_continuations=run.drop_continuations,
        ),
        RetryModelCalls(run.retry_policy, run.breaks, run.gate.check, run.observers, run.progress, label=run.label),
    ]
    if call.options.get("background"):
        layers.append(FetchBackgroundAnswers(run.journal, run.observers))
    if run.budget_account is not None:
        layers.append(run.budget_account.count_call)
    if run.exchange_recorder.is_enabled:
        layers.append(run.exchange_recorder.record_call)
    layers.append(_limit_time)
    return chain_layers(layers, ReadResponse(run.output))(call)


def chain_compaction_call(run: AgentRun, call: ModelCall) -> ModelStream:
    """Make a model call of a compaction strategy through its layers; the caller has the journal."""
    layers: list[ModelLayer] = [
        RetryModelCalls(run.retry_policy, {}, run.gate.check, run.observers, run.progress, label=run.label)
    ]
    if run.budget_account is not None:
        layers.append(run.budget_account.count_call)
    if run.exchange_recorder.is_enabled:
        layers.append(run.exchange_recorder.record_call)
    return chain_layers(layers, read_unmetered)(call)


def chain_nested_call(meter: NestedCallMeter | None, call: ModelCall, innermost: NextModelCall) -> ModelStream:
    """Make a model call of an agent within a run's agent through its layers; without a meter, outside of a turn."""
    layers: list[ModelLayer] = [end_turn_on_limit]
    if meter is not None:
        layers.append(meter.record_call)
        if meter.budget_account is not None:
            layers.append(meter.budget_account.count_call)
    layers.append(_limit_time)
    return chain_layers(layers, innermost)(call)


def _limit_time(call: ModelCall, call_next: NextModelCall) -> ModelStream:
    return stream_with_timeout(call_next(call), received_bytes().bounds)
