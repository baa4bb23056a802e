"""A real browser for tests: Chromium of the system, driven by Playwright; everything is on loopback.

Playwright's own browsers are not downloaded: what a distribution ships is what people have.
"""

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser", "missing_part"]

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic")


def missing_part() -> str:
    """What is not installed; empty if all is there."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright, which drives the browser, is not installed"
    return "" if any(map(shutil.which, _BROWSERS)) else f"no browser: none of {', '.join(_BROWSERS)}"


@contextmanager
def browser() -> "Iterator[Browser]":
    """A browser without a window, with profiles of its own that end with it."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, _BROWSERS)))
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        try:
            yield launched
        finally:
            launched.close()
