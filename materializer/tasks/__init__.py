"""A task while it is open: its group, its look-ahead and its generations.

In the order of work: ``group``, ``look_ahead``, ``task``.
"""

__all__: list[str] = []
