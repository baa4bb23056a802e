"""Which videos a task has: files, names, labels, the predicate, and the scan that indexes what is new.

In the order of work:

- ``discover``: the files of a folder, glob or URL
- ``names``: a video's name from its path, and back
- ``labels``: labels and further columns
- ``predicate``: the SQL predicate, in a process with limits
- ``scan``: find videos, labels and columns; probe what is new
- ``scan_worker``: the process that probes one file after another
- ``videos``: the videos that a task draws from, as arrays
- ``stand_ins``: which video stands in for one that is bad or gone
- ``recorded``: a dataset's videos as rows of the catalog; which files were replaced
- ``dataset``: a task's videos in memory: what may be drawn, and their packet indexes
"""

__all__: list[str] = []
