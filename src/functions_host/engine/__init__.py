"""Durable Task engine on one SQLite file: a pure core, one writer.

Theory of operation. An orchestration is its history. A work item reads the arrivals of an instance
(``sqlite_store``), calls the app's function with history and arrivals (``sdk_wire`` encodes the SDK's JSON),
has ``decide`` turn the returned actions into changes, and commits all changes in one transaction (``worker``,
``sqlite_store``). After a crash, work continues from the last commit: uncommitted work runs again, committed
work never does. ``crash_points`` names the points at which tests kill the process to prove it.

Text that was deleted leaves the files within a minute, and freed space goes back to the disk (the package
``sqlite_store``). Nothing is deleted unless a client asks for it.
"""
