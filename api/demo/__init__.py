"""``viewcache demo``: cold, warm and on demand, compared.

In the order of work: ``demo_clips``, ``on_demand``, ``sheet``, ``demo``.
"""

__all__: list[str] = []
