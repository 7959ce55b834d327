"""The app's durable functions as the engine calls them: orchestrators, activities and entities by name."""

from collections.abc import Iterable, Mapping

from functions_host.app_loader import AppFunction
from functions_host.durable_client import ClientAddresses
from functions_host.engine.functions import Raised, Returned
from functions_host.engine.sdk_wire import HTTP_ACTIVITY
from functions_host.engine.work import Catalog
from functions_host.http_activity import run_http_activity
from functions_host.invoke import Datum, Invoker, client_inputs
from functions_host.resident import Residents, is_supported


class AppDurableFunctions:
    """The engine's view of an app: its durable functions by name.

    Args:
        functions: of the app; those without a durable trigger are passed over.
        invoker: calls them.
        addresses: for the durable clients of activities.
        always_replay: never keep an orchestrator's generator between its episodes.
    """

    def __init__(
        self,
        functions: Iterable[AppFunction],
        invoker: Invoker,
        *,
        addresses: ClientAddresses,
        always_replay: bool = False,
    ) -> None:
        self._invoker = invoker
        self._addresses = addresses
        self._by_trigger: dict[str, dict[str, AppFunction]] = {}
        for function in functions:
            if function.durable_name is not None:
                self._by_trigger.setdefault(function.trigger, {})[function.durable_name.lower()] = function
        self.catalog = Catalog(
            orchestrators=frozenset(self._named("orchestrationTrigger")),
            activities=frozenset(self._named("activityTrigger")),
            entities=frozenset(self._named("entityTrigger")),
        )
        self._residents = None if always_replay else self._make_residents()

    def _make_residents(self) -> Residents | None:
        orchestrators = self._named("orchestrationTrigger").values()
        if not orchestrators or not is_supported():
            return None
        residents = Residents()
        for function in orchestrators:
            self._invoker.wrap_handle(function, residents.wrap)
        return residents

    async def run_orchestrator(
        self, name: str, context_json: str, *, keep: bool
    ) -> tuple[Returned | Raised, str | None]:
        """Call an orchestrator with its whole history; returns its answer, and its token when it is kept."""
        residents = self._residents
        if residents is None or not keep:
            return await self._run("orchestrationTrigger", name, context_json), None
        token, text = residents.open(context_json)
        return await self._run_resident(name, token, text), token

    async def resume_orchestrator(self, name: str, token: str, events_json: str) -> Returned | Raised | None:
        """Call a resident orchestrator with what is new; None when it is no longer resident."""
        text = self._residents.take(token, events_json) if self._residents is not None else None
        return None if text is None else await self._run_resident(name, token, text)

    def release_orchestrator(self, token: str) -> None:
        """Forget a resident orchestrator."""
        if self._residents is not None:
            self._residents.release(token)

    async def _run_resident(self, name: str, token: str, text: str) -> Returned | Raised:
        residents = self._residents
        assert residents is not None
        keep = False
        try:
            result = await self._run("orchestrationTrigger", name, text)
            keep = isinstance(result, Returned)
        finally:
            residents.put_back(token, keep=keep)
        return result

    async def run_entity(self, name: str, batch_json: str) -> Returned | Raised:
        """Call an entity's ``handle``."""
        return await self._run("entityTrigger", name, batch_json)

    async def run_activity(self, name: str, input_json: str) -> Returned | Raised:
        """Call an activity; the one for HTTP requests is built in."""
        if name == HTTP_ACTIVITY:
            return await run_http_activity(input_json)
        return await self._run("activityTrigger", name, input_json)

    def _named(self, trigger: str) -> Mapping[str, AppFunction]:
        return self._by_trigger.get(trigger, {})

    async def _run(self, trigger: str, name: str, text: str) -> Returned | Raised:
        function = self._named(trigger).get(name.lower())
        if function is None:
            kind = trigger.removesuffix("Trigger")
            return Raised("LookupError", f"The app has no {kind} function named '{name}'.")
        clients = client_inputs(function, self._addresses)
        result = await self._invoker.invoke(function, [(function.parameter, Datum(text, "string")), *clients])
        return result.raised or Returned(str(result.returned.value))
