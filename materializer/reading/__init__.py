"""Batches and frames out: wait for clips, gather them into one buffer, rebuild what is damaged.

In the order of work:

- ``learning``: what is found of videos that were opened by their headers
- ``deciding``: what becomes of clips that their video cannot give, decided beside the dispatcher
- ``batch``: clips into consecutive slots of one buffer
- ``batch_memory``: buffers that go from one pass to the next
- ``values``: what is said of videos, frames and reads, for any process
- ``accounts``: where a task's readers spend their time
- ``finishing``: what runs when a batch is handed out, normalization and mixing
- ``held``: what is held in the store until its bytes are loaded
- ``reader``: wait for a batch's clips, gather them, rebuild what is damaged
- ``recipes``: what was decided for clips, without their pixels
- ``frames``: one frame, or one frame after d steps, by its path
- ``handle``: a task as its users see it, in plain values
"""

__all__: list[str] = []
