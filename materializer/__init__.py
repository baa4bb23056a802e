"""What we do: task → graph → plan → decode → augment → store; who is served first, what leaves, what survives.

Its files, in the order in which work happens: spec, graph_check, scan (discover, names, labels, where, probe, video),
dataset, order, sampling, resolve (conditions, keyed, ops), program, plan, tables, task, generation, board, engine,
pool, worker, make (decode, pixels), ledger, read, recover.
"""

__all__: list[str] = []
