"""A task while it is open: its group, its look-ahead and its generations.

In the order of work:

- ``policies``: what policies for bad and short videos did, recorded
- ``settings``: what a task needs of its cache, and what it shares
- ``task``: one task of an open cache: its videos, draws and generations
- ``group``: tasks over one dataset: what they share, and drawing for them
- ``look_ahead``: planning and announcing what readers will need
- ``opening``: open tasks, let them share, plan again what a catalog lost
"""

__all__: list[str] = []
