"""Crossing threads and event loops: `waiters` wakes loops, `loop_thread` calls into one, `ticks` aligns writes."""
