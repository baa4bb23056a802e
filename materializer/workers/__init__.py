"""Who makes it: the job that a worker gets, what it does, and the pools of processes or threads.

In the order of work: ``job``, ``kept``, ``make``, ``worker``, ``pool``, ``thread_pool``.
"""

__all__: list[str] = []
