"""The page in a real browser: what it shows, on a desk and on a phone, what it asks for, and what it must not obey."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.page.conftest import HOSTILE, Pictured, Used, served
from tests.servers.browser import browser, missing_part
from viewcache.api.config.find import locate
from viewcache.api.page.server import PageServer
from viewcache.api.service.attached import AttachedCache

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LIMIT_MS = 60_000.0
PHONE, DESK = (360, 740), (1360, 900)


@pytest.fixture(scope="module")
def chromium() -> "Iterator[Browser]":
    """One browser for all of these tests; each has a profile of its own."""
    if missing := missing_part():
        pytest.skip(missing)
    with browser() as launched:
        yield launched


@contextmanager
def opened(chromium: "Browser", page: PageServer, size: tuple[int, int] = DESK) -> "Iterator[Page]":
    """The page as a person has opened it; no script fails in it meanwhile."""
    errors: list[str] = []
    context = chromium.new_context(viewport={"width": size[0], "height": size[1]})
    context.set_default_timeout(LIMIT_MS)
    try:
        tab = context.new_page()
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("console", lambda said: errors.append(said.text) if "Content Security Policy" in said.text else None)
        tab.on("dialog", lambda dialog: errors.append(dialog.message))
        tab.goto(page.url)
        tab.wait_for_selector("#tasks table")
        yield tab
    finally:
        context.close()
    assert not errors


def text(tab: "Page", part: str) -> str:
    """What a person reads in a part of the page."""
    return tab.inner_text(f"#{part}")


def seen(tab: "Page", image: str) -> None:
    """Wait until the first picture of a selector is there; the page's own policy allows no test code that is a text."""
    tab.locator(image).first.evaluate("image => image.decode()")


def test_the_page_shows_the_cache(chromium: "Browser", page: PageServer, used: Used) -> None:
    """Each part has its numbers; the key is gone from the address; a name with markup is words, and a failure has a
    picture or says that there is none.
    """
    with opened(chromium, page) as tab:
        assert tab.url == f"http://127.0.0.1:{page.port}/"
        assert "no process has the cache open" in text(tab, "seen")
        assert "epoch 3 of 6" in text(tab, "tasks")
        assert "train/3/0" in text(tab, "due")
        assert "of 1.2 MB" in text(tab, "tiers")
        assert "evicted" in text(tab, "objects")
        assert "nothing wants it" in text(tab, "evictions")
        assert tab.locator("#history svg").count() == 3
        assert HOSTILE in text(tab, "videos")
        seen(tab, "#videos img")
        tab.wait_for_selector("#videos .none")
        assert tab.title() == "store · viewcache"
        assert tab.evaluate("document.querySelectorAll('img[onerror], img[src=x]').length") == 0


def test_a_phone_and_a_keyboard_do(chromium: "Browser", page: PageServer) -> None:
    """At 360 pixels nothing has to be moved sideways; what tables mean stays; plots are read by the arrow keys."""
    with opened(chromium, page, PHONE) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") == PHONE[0]
        assert tab.get_by_role("rowheader", name="train", exact=True).count() == 1
        assert tab.get_by_role("meter", name="progress of train").get_attribute("aria-valuetext") == (
            tab.inner_text("#tasks [role=cell] div").strip()
        )
        plot = tab.locator("#history svg").first
        plot.focus()
        plot.press("Home")
        assert "there 0/s" in tab.inner_text("#history .reads >> nth=0")
        tab.keyboard.press("End")
        assert "there 0/s" not in tab.inner_text("#history .reads >> nth=0")
        tab.get_by_label("2 hours").check()
        assert tab.locator("#history svg").count() == 3
        assert tab.evaluate("document.documentElement.scrollWidth") == PHONE[0]


def test_a_plot_over_time_fits_a_short_run(chromium: "Browser", page: PageServer) -> None:
    """Seconds of reading are drawn over a minute, not as the last sliver of ten; the long plots go back no further."""
    with opened(chromium, page) as tab:
        for span, seconds in (("10 minutes", 60), ("2 hours", 720)):
            tab.get_by_label(span).check()
            label = tab.locator("#history svg").first.get_attribute("aria-label") or ""
            found = re.match(r"Clips read, (\d\d):(\d\d):(\d\d) to (\d\d):(\d\d):(\d\d)\.", label)
            assert found, label
            h, m, s, hours, minutes, later = map(int, found.groups())
            took = (3600 * (hours - h) + 60 * (minutes - m) + later - s) % 86400
            assert seconds <= took < 4 * seconds, "on a machine on which the run took minutes, too"


def test_a_batch_is_looked_into(chromium: "Browser", page: PageServer, used: Used) -> None:
    """Stored clips are shown with their words, others are said to be none; a batch that is not planned is told."""
    epoch, iteration, clip = used.stored
    with opened(chromium, page) as tab:
        tab.fill("input[name=epoch]", str(epoch))
        tab.fill("input[name=iteration]", str(iteration))
        tab.click("#which button:has-text('Show')")
        image = f"#batch figure:nth-of-type({clip + 1}) img"
        seen(tab, image)
        figure = tab.inner_text(f"#batch figure:nth-of-type({clip + 1})")
        assert "(8)" in figure
        assert "ready" in figure
        assert re.search(r"resize to \d+x36 · random crop 32x32 at x \d+ y \d+", figure)
        tab.fill("input[name=iteration]", "999")
        tab.click("#which button:has-text('Show')")
        tab.wait_for_selector(f"#batch-says:has-text('no batch train/{epoch}/999')")
        assert tab.locator("#batch figure").count() == 0


def test_a_batch_of_images_is_looked_into(chromium: "Browser", pictured: Pictured) -> None:
    """Each image is named beside its picture, and the name opens the whole image."""
    with served(locate(str(pictured.store))) as page, opened(chromium, page) as tab:
        tab.fill("input[name=epoch]", "0")
        tab.fill("input[name=iteration]", "0")
        tab.click("#which button:has-text('Show')")
        seen(tab, "#batch figure:nth-of-type(8) img")
        assert "8 images, all stored" in text(tab, "batch-says")
        assert tab.locator("#batch figcaption a").all_inner_texts() == [*pictured.batches[0].videos]
        with tab.expect_popup() as whole:
            tab.click("#batch figure:nth-of-type(1) a")
        seen(whole.value, "img")
        assert "video.jpg?id=" in whole.value.url


def test_it_goes_on_with_the_training(
    chromium: "Browser", attach: Callable[..., AttachedCache], tmp_path: Path
) -> None:
    """What is read moves the page; a tab that nobody sees asks for nothing; missing clips are made when that is asked
    for; when the page's command ends, that is said and what was seen stays.
    """
    cache = attach(budget="50MB")
    seat = cache.task("train").sit()
    seat.read(0, 0)
    with served(locate(str(tmp_path / "store"))) as page, opened(chromium, page) as tab:
        tab.wait_for_selector("#tasks:has-text('batch 1 of')")
        seat.read(0, 1)
        tab.wait_for_selector("#tasks:has-text('batch 2 of')")
        assert "as rank 0 of 1" in text(tab, "clients")
        last = cache.task("train").iterations(1) - 1
        tab.fill("input[name=epoch]", "1")
        tab.fill("input[name=iteration]", str(last))
        tab.click("#which button:has-text('Show')")
        tab.wait_for_selector("#batch figure")
        if tab.is_visible("#make"):
            tab.click("#make")
        tab.wait_for_selector("#batch .strip:not(:has(img))", state="detached")
        seen(tab, "#batch img")
        tab.wait_for_selector("#batch .recipe:empty", state="detached")
        assert tab.locator("#batch .recipe:has-text('random crop')").count() == tab.locator("#batch figure").count()
        asked: list[str] = []
        tab.clock.install()
        tab.on("request", lambda request: asked.append(request.url))
        hide(tab, hidden=True)
        tab.clock.run_for(30_000)
        asked.clear()
        tab.clock.run_for(30_000)
        assert not asked
        with tab.expect_request("**/overview.json"):
            hide(tab, hidden=False)
        page.close()
        tab.clock.run_for(10_000)
        tab.wait_for_selector("#problem:has-text('does not answer')")
        assert "batch 2 of" in text(tab, "tasks")


def hide(tab: "Page", *, hidden: bool) -> None:
    """As if another tab were in front."""
    tab.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )
