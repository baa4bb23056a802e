"""Operations in processes of another Python, with libraries of its own (SAND §5.5).

In the order of work:

- ``asks``: what an op worker is asked, one struct for each verb
- ``answers``: what it answers
- ``boot``: started there, by path: makes what operations are made of importable
- ``serve``: what runs there
- ``arena``: shared memory for frames
- ``calls``: how much one call carries
- ``process``: one process of an op worker and the line to it
- ``crew``: the processes of one op worker, and what becomes of calls that end one
- ``remote``: an operation that is served there, as everybody else sees it
- ``crews``: those of this process
- ``sources``: where the operations of users' own come from, for the process that plans and for those that work
"""

__all__: list[str] = []
