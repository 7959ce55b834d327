"""The engine's port to the app: orchestrators, activities and entities by name."""

from collections.abc import Iterable, Mapping

from functions_host.app.client_binding import ClientAddresses
from functions_host.app.function import AppFunction
from functions_host.app.invoker import Datum, Invoker, client_inputs
from functions_host.engine.call_http import run_http_activity
from functions_host.engine.decision import Catalog
from functions_host.engine.durable_functions import Raised, Returned
from functions_host.engine.sdk_wire import HTTP_ACTIVITY


class AppDurableFunctions:
    """The engine's view of an app: its durable functions by name.

    Args:
        functions: of the app; those without a durable trigger are ignored.
        invoker: calls them.
        addresses: for the durable clients of activities.
    """

    def __init__(self, functions: Iterable[AppFunction], invoker: Invoker, addresses: ClientAddresses) -> None:
        self._invoker = invoker
        self._addresses = addresses
        self._by_trigger: dict[str, dict[str, AppFunction]] = {}
        for function in functions:
            if function.durable_name is not None:
                self._by_trigger.setdefault(function.trigger, {})[function.durable_name.lower()] = function
        self.catalog = Catalog(
            orchestrators=frozenset(self._functions_by_name("orchestrationTrigger")),
            activities=frozenset(self._functions_by_name("activityTrigger")),
            entities=frozenset(self._functions_by_name("entityTrigger")),
        )

    async def run_orchestrator(self, name: str, context_json: str) -> Returned | Raised:
        """Call an orchestrator with its whole history."""
        return await self._run("orchestrationTrigger", name, context_json)

    async def run_entity(self, name: str, batch_json: str) -> Returned | Raised:
        """Call an entity's ``handle``."""
        return await self._run("entityTrigger", name, batch_json)

    async def run_activity(self, name: str, input_json: str) -> Returned | Raised:
        """Call an activity; the HTTP activity is built in."""
        if name == HTTP_ACTIVITY:
            return await run_http_activity(input_json)
        return await self._run("activityTrigger", name, input_json)

    def _functions_by_name(self, trigger: str) -> Mapping[str, AppFunction]:
        return self._by_trigger.get(trigger, {})

    async def _run(self, trigger: str, name: str, text: str) -> Returned | Raised:
        function = self._functions_by_name(trigger).get(name.lower())
        if function is None:
            kind = trigger.removesuffix("Trigger")
            return Raised("LookupError", f"The app has no {kind} function named '{name}'.")
        clients = client_inputs(function, self._addresses)
        result = await self._invoker.invoke(function, [(function.parameter, Datum(text, "string")), *clients])
        return result.failure or Returned(str(result.return_value.value))
