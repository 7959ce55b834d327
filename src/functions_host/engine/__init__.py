"""Durable Task engine on one SQLite file: a pure core, one writer.

Theory of operation. An orchestration is its history. A work item takes what has arrived for an
instance (``sqlite``), hands history and arrivals to the app's function (``sdk_wire`` speaks the
SDK's JSON), lets ``decide`` turn the returned actions into changes, and commits all of them in one
transaction (``worker``, ``sqlite``). Whatever was not committed when the process died is simply
done again from the last commit; nothing that was committed is done twice. ``crash`` names the points at
which tests end the process to show it.

An orchestrator may stay in memory between its episodes and be given only what is new (``runs``); that saves
time and changes no answer. ``FUNCTIONS_HOST_ALWAYS_REPLAY=1`` turns it off.
"""
