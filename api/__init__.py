"""What people touch: configuration, the open cache, the PyTorch loader, `view://` paths, the command line.

``text`` has the words for sizes, times and counts, and what shows progress, ``sheet`` draws frames beside one another,
``arguments`` looks at what callers give, ``permission`` says what to do where files are refused, ``signals`` has what
ends a command in the foreground; every folder may import them. The public names are re-exported lazily by `viewcache`
itself.
"""

__all__: list[str] = []
