"""``viewcache mount``: the views of a cache as files, for whatever can open, read and close them (SAND Table 2).

In the order of work:

- ``names``: a path below the mount to a `view://` path
- ``attributes``: extended attributes: metadata as JSON
- ``errnos``: what an error is to the operating system, and its text for people
- ``requests``: work that a reader waits for, and how the reader is let go
- ``readers``: who holds a task's folder open, and so reads it
- ``files``: open files and the memory behind them
- ``operations``: what is done when the kernel asks
- ``library``: libfuse, by mfusepy
- ``place``: the folder that is mounted over
- ``run``: the process that mounts
"""

__all__: list[str] = []
