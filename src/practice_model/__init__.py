"""A local server that speaks OpenAI's Responses and Chat Completions APIs, for people without a key and for tests.

Run it with `python -m practice_model --port 8901`, or serve `PracticeModel().app` in a test.
"""

from practice_model.rules.requests import Rules
from practice_model.server import PracticeModel

__all__ = ["PracticeModel", "Rules"]
