"""The same rules under a simulated clock: what reading under other budgets would be like.

In the order of work: ``simulated_uses``, ``simulated_engine``, ``simulated_room``, ``simulate``, ``rehearse``.
"""

__all__: list[str] = []
