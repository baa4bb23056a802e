"""Who is next: demand, deadlines, running jobs, preemption, and what leaves to make room.

In the order of work:

- ``work``: rows to be made, as the engine sees them
- ``generation``: a generation in work: planned, being made, ready, failed
- ``demand``: who waits for what: demands and look-ahead
- ``running``: jobs that workers have, and what a job makes for whom
- ``pressure``: what workers hold in memory, and when that is too much
- ``chooser``: who is next, and which jobs are interrupted or given up
- ``bases``: kept pictures that clips are made from, as work
- ``evictor``: what leaves the tiers for what
- ``migration``: objects move up before they are due, and down when a tier fills
- ``dispatcher``: demand first, then what is due; what leaves
"""

__all__: list[str] = []
