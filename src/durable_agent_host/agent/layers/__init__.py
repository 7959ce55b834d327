"""The layers of model calls: one feature of a call in each module. No layer imports another."""
