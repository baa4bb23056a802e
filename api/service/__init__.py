"""Many processes, one cache: a process of its own owns the store, and all others ask it.

In the order of work:

- ``asks``: what a client asks, a struct for each verb
- ``answers``: what the service says
- ``wire``: how both travel: framed msgpack
- ``described``: both as tables of docs/protocol.md, and those of op workers
- ``files``: the service's files in the store's folder, its socket among them
- ``peer``: who is at the other end of a connection, and when that process ends
- ``counted``: counters and progress as they travel
- ``ancestors``: from which processes another one comes
- ``usage``: what a process and its descendants have taken of the CPU
- ``field_wire``: further columns of a batch as they travel
- ``transit``: memory for what a client cannot read itself
- ``sessions``: what is kept for each client: seats, and what it holds
- ``handing``: what is held for clients, where they can read it
- ``jobs``: trainings of equal tasks side by side
- ``retiring``: jobs whose processes have all ended
- ``verbs``: what is done when a client asks; nothing of sockets
- ``server``: connections, clients' ends, and the service's own
- ``run``: the process that serves
- ``renewal``: a client's configuration as its files have it by now
- ``starting``: how the service is started, twice removed
- ``asking``: one question on one line
- ``connected``: a session with one run of the service
- ``client``: a process's connections, and finding the service again
- ``stopping``: ending a service
- ``watching``: who uses a service
- ``received``: what the service says, as the values of a task
- ``facts``: what a process was told of a task, and whether another run of the service says the same
- ``attached_task``: a task of such a cache: questions, and pixels read here
- ``attached``: a cache that another process owns
- ``opening``: `viewcache.open`: attach, start, or own the store
"""

__all__: list[str] = []
