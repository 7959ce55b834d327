"""The pytest plugin: apps under test, their clock, and their crashes."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import azure.durable_functions as df
import azure.functions as func
import pytest

from functions_host.errors import StartupError
from functions_host.testing import AppUnderTest, HostCrashedError, OrchestrationFailedError, StuckError
from tests import sweeps
from tests.functions_host.conftest import APPS

pytest_plugins = ["functions_host.testing"]

BEGIN = datetime(2027, 1, 1, 12, tzinfo=UTC)
type OpenApp = Callable[..., AppUnderTest]


@pytest.fixture
def shop(durable_app: OpenApp) -> AppUnderTest:
    """The sample app, opened by its path."""
    return durable_app(APPS / "tested", settings={"SHOP": "corner"}, now=BEGIN)


def app_attribute(name: str):
    """Something of the module that the app under test has been loaded from."""
    return getattr(sys.modules["function_app"], name)


# --- time -----------------------------------------------------------------------------------------


def test_three_days_pass_at_once(shop: AppUnderTest):
    """A timer of three days fires when the clock is moved, not before, and time in the orchestration has passed."""
    order = shop.start("order", {"sku": "tea"})
    assert order.status == "Running"
    shop.advance(timedelta(days=2, hours=23))
    assert order.custom_status is None
    shop.advance(timedelta(hours=1))
    assert order.custom_status == "reminded"
    assert shop.now == BEGIN + timedelta(days=3)
    order.raise_event("paid", 2)
    assert order.output == {"parcel": "2 tea", "left": 8, "waited": "3 days, 0:00:00"}


def test_timers_on_the_way_fire_in_order(shop: AppUnderTest):
    """One large step passes the reminder at its time before it reaches the end."""
    order = shop.start("order", {"sku": "tea"}, instance_id="my-order")
    shop.advance(timedelta(days=30))
    assert (order.id, order.status, order.output) == ("my-order", "Completed", "given up")
    fired_timers = [event for event in order.history if event["EventType"] == 11]
    assert len(fired_timers) == 2
    assert fired_timers[0]["Timestamp"] < fired_timers[1]["Timestamp"]


def test_retries_wait_on_the_clock(shop: AppUnderTest):
    """Each attempt comes after its delay; result() skips what timers remain."""
    stubborn = shop.start("stubborn", 2)
    assert len(app_attribute("attempts")) == 1
    shop.advance(timedelta(minutes=59))
    assert len(app_attribute("attempts")) == 1
    shop.advance(timedelta(minutes=1))
    assert len(app_attribute("attempts")) == 2
    assert stubborn.result() == [3, "2027-01-01T14:00:00+00:00"]


def test_a_failure_is_raised_with_its_message(shop: AppUnderTest):
    """An orchestration that fails has no result."""
    with pytest.raises(OrchestrationFailedError, match="not yet"):
        shop.start("stubborn", 9).result()
    assert len(app_attribute("attempts")) == 4


def test_an_orchestration_without_a_pending_timer_is_reported(shop: AppUnderTest, durable_app: OpenApp):
    """Waiting for an event that nobody sends is an error, not a hang."""
    app = df.DFApp()

    @app.orchestration_trigger(context_name="context")
    def waits(context):
        yield context.wait_for_external_event("never")

    @app.orchestration_trigger(context_name="context")
    def reuses_its_timer(context):
        timer = context.create_timer(context.current_utc_datetime + timedelta(hours=1))
        yield context.task_any([context.wait_for_external_event("go"), timer])
        yield context.task_any([context.wait_for_external_event("go"), timer])
        yield context.call_entity(df.EntityId("stock", "tea"), "add", 1)

    opened = durable_app(app)
    with pytest.raises(StuckError, match="such as an event"):
        opened.start("waits").wait()
    hanging = opened.start("reuses_its_timer")
    hanging.raise_event("go")
    with pytest.raises(StuckError, match="waits for call of entity '@stock@tea', which was never started"):
        hanging.wait()


# --- orchestrations, entities, HTTP ----------------------------------------------------------------


def test_instances_are_managed(shop: AppUnderTest):
    """Suspended, what arrives waits; terminated, the reason is the output."""
    order = shop.start("order", {"sku": "tea"})
    order.suspend()
    order.raise_event("paid", 1)
    assert order.status == "Suspended"
    order.resume()
    assert order.result()["left"] == 9
    other = shop.start("order", {"sku": "tea"})
    other.terminate("no tea")
    assert (other.status, other.output) == ("Terminated", "no tea")


def test_entities_are_signalled_and_read(shop: AppUnderTest):
    """Signals change the state."""
    assert shop.entity_state("stock", "tea") is None
    shop.signal_entity("stock", "tea", "add", 5)
    assert shop.entity_state("stock", "tea") == 15


def test_http_functions_and_their_durable_clients(shop: AppUnderTest):
    """HTTP functions are called with their route; what they start has gone as far as it can on return."""
    answer = shop.http("POST", "/api/orders", {"sku": "tea"})
    assert answer.status == 202
    order = shop.orchestration(answer.json()["id"])
    order.raise_event("paid", 3)
    assert order.result()["parcel"] == "3 tea"
    assert shop.http("GET", "/api/stock/tea").json() == {"left": 7, "shop": "corner"}
    assert shop.http("GET", "/api/nothing").status == 404


def test_timer_functions_are_called_by_hand(shop: AppUnderTest):
    """A timer trigger runs when the test says so."""
    shop.advance(timedelta(days=2))
    assert app_attribute("nightly_runs") == []
    assert shop.run_timer("nightly", past_due=True)
    assert app_attribute("nightly_runs") == [True]
    with pytest.raises(StartupError, match="it has: nightly"):
        shop.run_timer("daily")


# --- crashes --------------------------------------------------------------------------------------


def run_story(shop: AppUnderTest) -> list[object]:
    """Do some of everything; a call that the crash hits is looked into and done again if it was lost."""

    def insist(is_done: Callable[[], bool], act: Callable[[], object]) -> None:
        try:
            act()
        except HostCrashedError:
            if not is_done():
                act()

    orders = [f"order-{number}" for number in range(3)]
    for name in orders:

        def exists(name: str = name) -> bool:
            return shop.orchestration(name).exists

        insist(exists, lambda name=name: shop.start("order", {"sku": "tea"}, instance_id=name))
    shop.advance(timedelta(days=3))
    for name in orders[:2]:
        order = shop.orchestration(name)
        insist(lambda order=order: order.status == "Completed", lambda order=order: order.raise_event("paid", 2))
    results = [shop.orchestration(name).result() for name in orders]
    return [*sorted(map(str, results)), shop.entity_state("stock", "tea")]


@pytest.mark.sweep
def test_crashes_after_every_commit_change_nothing(durable_app: OpenApp):
    """Whichever commit the process dies after, the story ends the same; a run takes every fourth of them."""
    step = 1 if sweeps.IS_LONG else 4
    expected_story = run_story(durable_app(APPS / "tested", now=BEGIN))
    assert expected_story[-1] == 6
    for commits in range(sweeps.chooser("commits").randint(1, step), 40, step):
        shop = durable_app(APPS / "tested", now=BEGIN)
        shop.crash_after(commits)
        assert run_story(shop) == expected_story, f"after {commits} commits"
        crash_count = shop.crashes
        shop.close()
        if not crash_count:
            break
    assert commits > 15


@pytest.mark.parametrize(
    "point",
    [
        "orchestrator.before_call",
        "episode.before_commit",
        "answer.before_commit",
        "batch.before_commit",
        "event.after_commit",
    ],
)
def test_crashes_at_named_points_change_nothing(durable_app: OpenApp, point: str):
    """A crash at a named point is passed, and comes once."""
    shop = durable_app(APPS / "tested", now=BEGIN)
    shop.crash_at(point, times=2)
    assert run_story(shop)[-1] == 6
    assert shop.crashes == 1


def test_a_result_that_was_not_committed_is_requested_again(shop: AppUnderTest):
    """An activity runs at least once: lost before its commit, it runs again."""
    order = shop.start("order", {"sku": "tea"})
    shop.crash_at("answer.before_commit")
    order.raise_event("paid", 1)
    assert order.result()["parcel"] == "1 tea"
    assert app_attribute("packed_skus") == ["tea", "tea"]
    assert shop.crashes == 1


def test_a_kill_in_between_is_not_noticed(shop: AppUnderTest):
    """Killed at rest, everything goes on from the store."""
    order = shop.start("order", {"sku": "tea"})
    shop.crash()
    shop.advance(timedelta(days=3))
    shop.crash()
    assert order.custom_status == "reminded"
    assert order.result() == "given up"
    assert shop.crashes == 2


def test_an_unknown_point_is_rejected(shop: AppUnderTest):
    """The message lists the points that there are."""
    with pytest.raises(ValueError, match=r"episode\.before_commit"):
        shop.crash_at("whenever")


# --- several apps ---------------------------------------------------------------------------------


def make_app(answer: str) -> df.DFApp:
    app = df.DFApp()

    @app.orchestration_trigger(context_name="context")
    def ask(context):
        return (yield context.call_activity("say", None))

    @app.activity_trigger(input_name="nothing")
    def say(nothing) -> str:
        return answer

    return app


def test_apps_side_by_side(durable_app: OpenApp):
    """Two apps with functions of the same names do not know of each other."""
    first, second = durable_app(make_app("one")), durable_app(make_app("two"))
    assert [app_under_test.start("ask").result() for app_under_test in (first, second, first)] == ["one", "two", "one"]


def test_an_app_object_can_be_opened_again(durable_app: OpenApp):
    """An app that a test module has imported is fresh in every test."""
    app = make_app("again")
    assert durable_app(app).start("ask", instance_id="same").result() == "again"
    assert durable_app(app).start("ask", instance_id="same").result() == "again"


def test_a_blueprint_alone(durable_app: OpenApp):
    """A blueprint can be tested without an app."""
    blueprint = df.Blueprint()

    @blueprint.orchestration_trigger(context_name="context")
    def double(context):
        return 2 * context.get_input()

    assert durable_app(blueprint).start("double", 21).result() == 42


def test_classic_and_streaming_apps_in_one_process(durable_app: OpenApp):
    """An app that takes FastAPI requests does not keep others from taking the SDK's."""
    streaming = durable_app(APPS / "streaming")
    assert streaming.http("GET", "/api/value").json() == {"a": [1, None]}
    classic = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)

    @classic.route(route="classic")
    def plain(req: func.HttpRequest) -> str:
        return req.method

    assert durable_app(classic).http("GET", "/api/classic").text == "GET"
    assert streaming.http("POST", "/api/start/shout", '"quiet"').json() == {"output": "QUIET"}


def test_an_app_that_cannot_be_opened_is_reported(durable_app: OpenApp, tmp_path: Path):
    """The messages are those of start."""
    with pytest.raises(StartupError, match=r"There is no function_app\.py"):
        durable_app(tmp_path)
    app = df.DFApp()

    @app.activity_trigger(input_name="given")
    def wrong(fields: dict[str, int]) -> None:
        pass

    with pytest.raises(StartupError, match="Function 'wrong' cannot be loaded"):
        durable_app(app)
