"""What the running parts report of themselves: counters, stalls by cause, and the trace.

In the order of work: ``observer``, ``stalls``, ``trace``, ``trace_file``.
"""

__all__: list[str] = []
