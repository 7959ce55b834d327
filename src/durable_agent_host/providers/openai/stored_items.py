"""What OpenAI's clients repeat in the contents of their items, for the compact form of stored entries. Pure.

These forms read the stored conversations of all released versions: changing one, here or in a row of `item_types`,
changes their meaning.
"""

from typing import Final

from durable_agent_host.codec.item_forms import ItemForm, ItemForms
from durable_agent_host.providers.openai.item_types import ITEM_ID_BESIDE, item_forms

ITEM_FORMS: Final = ItemForms(
    provider="openai",
    item_id="item_id",
    new_usual_block=lambda: {"logprobs": []},
    # The framework copies the properties of a call to its result.
    contents={**item_forms(), "functionResult": ItemForm(beside=ITEM_ID_BESIDE)},
    usage_twins={
        "openai.cached_input_tokens": "cache_read_input_token_count",
        "openai.cache_write_tokens": "cache_creation_input_token_count",
        "openai.reasoning_tokens": "reasoning_output_token_count",
    },
)
