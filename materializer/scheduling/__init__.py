"""Who is next: demand, deadlines, running jobs, preemption, and what leaves to make room.

In the order of work: ``work``, ``generation``, ``demand``, ``running``, ``pressure``, ``chooser``, ``bases``,
``evictor``, ``migration``, ``dispatcher``.
"""

__all__: list[str] = []
