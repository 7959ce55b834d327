"""Settings of the whole suite: no test fails because the machine was busy."""

from hypothesis import settings

settings.register_profile("project", settings.default, deadline=None)
settings.load_profile("project")
