"""The command line: one module of commands for each thing that people do.

In the order of work: ``terminal``, ``make``, ``look``, ``care``, ``evict``, ``main``.
"""

__all__: list[str] = []
