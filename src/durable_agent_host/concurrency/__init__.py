"""Work across threads and event loops.

`thread_safe_waiters` wakes loops, `event_loop_thread` calls into one, `thread_offload` computes in a thread.
"""
