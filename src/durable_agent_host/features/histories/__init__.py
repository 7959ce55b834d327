"""Conversations that history providers of the app keep: loaded for each run, saved once, deleted with the session."""
