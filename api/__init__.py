"""What people touch: configuration, the open cache, the PyTorch loader, `view://` paths, the command line.

The public names are re-exported lazily by `viewcache` itself.
"""

__all__: list[str] = []
