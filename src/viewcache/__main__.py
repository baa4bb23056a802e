"""``python -m viewcache COMMAND …``: the command line, by the interpreter that has viewcache installed."""

import sys

from viewcache.api.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
