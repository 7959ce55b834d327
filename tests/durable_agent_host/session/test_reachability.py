"""What a session's head refers to, which no sweep may delete."""

from durable_agent_host.model.segment_refs import SegmentList, SegmentRef
from durable_agent_host.model.session import Session
from durable_agent_host.session.sealing import blobs_of_head


def test_a_head_names_all_that_is_apart_from_it():
    """Segments, the framework's session, the overlay and the list of homes, each in its own home."""
    ref = SegmentRef("segment", "home-1", entries=1, size=1)
    sealed = SegmentList(
        "home-0",
        ("home-0", "home-1"),
        refs=(ref,),
        agent_session=("agent-session", "home-2"),
        overlay=("overlay", "home-3"),
        namespaces_at=("homes", "home-4"),
    )
    assert blobs_of_head(Session(sealed=sealed)) == {
        ("home-1", "segment"),
        ("home-2", "agent-session"),
        ("home-3", "overlay"),
        ("home-4", "homes"),
    }
