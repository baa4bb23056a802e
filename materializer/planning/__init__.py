"""What is to be made: the graph, orders, clip starts, resolved random choices, and the plan of a generation.

In the order of work:

- ``graph``: the abstract graph: producers, cycles, which stream is the clip
- ``conditions``: the grammar of conditions
- ``definition``: a task's canonical definition, and its graph
- ``weighted_order``: the order of an epoch in which items come by weight
- ``recorded_weights``: how often items were to come in drawn epochs, on record
- ``order``: which video stands where in an epoch, for a task alone
- ``joint_order``: the orders of several jobs, drawn together
- ``clip_starts``: which frames make a clip: the shared fraction
- ``clip_times``: the same for clips that are sampled by time
- ``resolve``: every random choice of many clips at once
- ``program``: the resolved operations of one clip
- ``clip_keys``: content keys of clips
- ``blocks``: pictures of images that are one object together
- ``size``: how large a plan and its objects may be
- ``packs``: where kept pictures of images lie in one object
- ``recipe``: how an object is made, as a value
- ``columns``: recipes and videos of several clips, as columns
- ``audio``: the audio of planned clips: keys and recipes
- ``one_shape``: whether all clips of a plan have one shape
- ``plan``: a generation's plan, as it was decided
- ``plan_generation``: decides it, or one batch of it
- ``redefined``: what differs between two definitions of a task, in words
- ``twins``: the plan of a task of the same definition, in another order
- ``digests``: orders that are recorded as what they are computed from, checked
- ``draws``: what the catalog remembers of a task's order
- ``needs``: the frames that a generation needs of each video, and their packets
- ``rows``: a plan as rows for the catalog, by columns
- ``mounts``: which device a file lies on, in words
- ``ladder``: what each way of writing pictures down takes
- ``devices``: what disks and buckets give, cold
- ``prices``: what bytes are worth now, as a value
- ``cost``: what work costs: measured, else guessed
- ``sharing``: what tasks save by sharing, counted
"""

__all__: list[str] = []
