"""A local server that speaks the OpenAI Responses API, for people without a key and for tests.

Run it with `python -m practice_model --port 8901`, or use `create_app` in a test.
"""

from practice_model.rules.requests import Rules
from practice_model.server import PracticeModel, create_app

__all__ = ["PracticeModel", "Rules", "create_app"]
