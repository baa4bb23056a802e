"""What is to be made: the graph, orders, clip starts, resolved random choices, and the plan of a generation.

In the order of work: ``graph``, ``conditions``, ``order``, ``joint_order``, ``clip_starts``, ``resolve``,
``program``, ``plan``, ``draws``, ``rows``, ``cost``, ``sharing``.
"""

__all__: list[str] = []
