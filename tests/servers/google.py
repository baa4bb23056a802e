"""Google's storage on loopback: gcp-storage-emulator, which heeds no conditions, with the one that publishing needs.

Run as `python tests/servers/google.py PORT`. The condition is the service's: ``ifGenerationMatch=0`` makes an object
only where there is none, and is answered by 412 where there is one.
"""

import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

__all__ = ["main"]


def _conditional(upload: Callable[..., None]) -> Callable[..., None]:
    from gcp_storage_emulator.exceptions import NotFound

    def guarded(request: Any, response: Any, storage: Any) -> None:
        if request.query.get("ifGenerationMatch") == ["0"]:
            try:
                storage.get_file_obj(request.params["bucket_name"], request.data["meta"]["name"])
            except NotFound:
                pass
            else:
                response.status = HTTPStatus.PRECONDITION_FAILED
                return
        upload(request, response, storage)  # one request at a time: the server has one thread

    return guarded


def main() -> None:
    """Serve until killed."""
    from gcp_storage_emulator.handlers import objects
    from gcp_storage_emulator.server import create_server

    objects._multipart_upload = _conditional(objects._multipart_upload)
    create_server("127.0.0.1", int(sys.argv[1]), in_memory=True, default_bucket="bucket").run()


if __name__ == "__main__":
    main()
