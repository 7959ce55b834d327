"""Orchestrators that a replay shows something else: drivers, and who asks whether it is a replay."""

import logging
from functools import wraps

import azure.durable_functions as df

app = df.DFApp()
COMPLETED = 5
"""The code of TaskCompleted in a history."""


class NotYetError(Exception):
    """The result of a call is not known yet."""


class Calls:
    """Gives a plain function the results of activities, by running it from its beginning on each replay."""

    def __init__(self, context):
        self.context = context
        self.done = []

    def ask(self, number):
        """Give the result of an activity, or stop here until it is there."""
        task = self.context.call_activity("work", number)
        results = [event.Result for event in self.context.histories if event.event_type == COMPLETED]
        if len(results) <= len(self.done):
            raise NotYetError(task)
        self.done.append(task)
        return int(results[len(self.done) - 1])

    def _yield_done(self):
        yield from (task for task in self.done)
        self.done.clear()

    def drive(self, function):
        """Run the function; yield what it has waited for, and what it waits for."""
        try:
            return function(self.ask, self.context.get_input())
        except NotYetError as missing:
            yield from self._yield_done()
            yield missing.args[0]
        finally:
            yield from self._yield_done()


def driven(function):
    """Make an orchestrator of a plain function, as the SDK's decorator for openai-agents does."""

    @wraps(function)
    def orchestrator(context):
        return Calls(context).drive(function)

    return orchestrator


def delegate_to(function):
    """Wrap a generator function in another one."""

    @wraps(function)
    def orchestrator(context):
        return (yield from function(context))

    return orchestrator


@app.function_name("work")
@app.activity_trigger(input_name="number")
def add_one(number: int) -> int:
    """Count one up."""
    return number + 1


def _chain(ask, count):
    total = 0
    for number in range(count):
        total += ask(number)
    return total


@app.orchestration_trigger(context_name="context")
@driven
def decorated(ask, count):
    """Run in a driver, by a decorator."""
    return _chain(ask, count)


@app.orchestration_trigger(context_name="context")
def delegating(context):
    """Run in a driver, from a generator function."""
    return (yield from Calls(context).drive(_chain))


@app.orchestration_trigger(context_name="context")
@delegate_to
def wrapped(context):
    """Call activities in a generator that another one wraps."""
    total = 0
    for number in range(context.get_input()):
        total += yield context.call_activity("work", number)
    return total


def _is_live(context):
    return not context.is_replaying


@app.orchestration_trigger(context_name="context")
def checkpoints(context):
    """Note at which steps it is told that they are new."""
    live = []
    for number in range(context.get_input()):
        yield context.call_activity("work", number)
        if not context.is_replaying:
            live.append(number)
    return live


@app.function_name("checkpoints_elsewhere")
@app.orchestration_trigger(context_name="context")
def checkpoints_in_a_function(context):
    """Note the same with a function that asks, after some steps."""
    count, live = context.get_input(), []
    for number in range(count):
        yield context.call_activity("work", number)
        if number >= count // 2 and globals()["_is_live"](context):
            live.append(number)
    return live


@app.orchestration_trigger(context_name="context")
def logged(context):
    """Log each new step."""
    for number in range(context.get_input()):
        yield context.call_activity("work", number)
        if not context.is_replaying:
            logging.getLogger("app").warning("new step %d", number)
    return "logged"
