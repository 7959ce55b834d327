"""The host's own times are read as the SDK's parser reads them."""

import importlib
from typing import Any

import pytest
from dateutil.parser import parse

from functions_host.app.loader import describe_app
from functions_host.engine.sdk_wire import format_time
from functions_host.engine.status_wire import format_second

MODULES = ("history.HistoryEvent", "DurableOrchestrationStatus")
TIMES = (
    *(format_time(seconds) for seconds in (0.0, 1.5, 1793000000.123456, 253402300799.0)),
    *(format_second(seconds) for seconds in (0.0, 1793000000.9)),
    *("2026-11-22", "2026-11-22T18:12:11+02:00", "2026-11-22T18:12:11.5Z", "22 Nov 2026 18:12"),
)


@pytest.mark.parametrize("name", MODULES)
def test_times_are_those_of_the_parser(name: str):
    """Own forms, which are read directly, and others; with the same zone."""
    module: Any = importlib.import_module(f"azure.durable_functions.models.{name}")
    describe_app([])
    for text in TIMES:
        assert module.dt_parse(text) == parse(text)
        assert repr(module.dt_parse(text)) == repr(parse(text))
    for wrong in ("2026-13-22T18:12:11Z", "no time"):
        with pytest.raises(ValueError, match=wrong):
            module.dt_parse(wrong)
