"""A task while it is open: its group, its look-ahead and its generations.

In the order of work:

- ``policies``: what policies for bad and short videos did, recorded
- ``settings``: what a task needs of its cache, and what it shares
- ``drawn``: a generation whose order is drawn before it is planned
- ``numbering``: ids of the objects of plans
- ``planner``: a generation planned from its order, or from the plan of a task of the same definition
- ``missing``: clips of videos that are gone: from the store, or from another video
- ``replacing``: another video for clips that theirs cannot give, and plans by what is known by now
- ``batch_work``: the clips of one batch, as work
- ``early``: batches that are read before their generation is planned
- ``outline``: what batches will look like, before anything is drawn
- ``joining``: new videos join a task whose dataset grows
- ``task``: one task of an open cache: its videos, draws and generations
- ``group``: tasks over one dataset: what they share, and drawing for them
- ``look_ahead``: planning and announcing what readers will need
- ``class_numbers``: which classes have another number than when the dataset was opened last
- ``changes``: what changes of a dataset's files mean for a task
- ``scanned_files``: keep near what a scan had to read whole
- ``opening``: open tasks, let them share, plan again what a catalog lost
"""

__all__: list[str] = []
