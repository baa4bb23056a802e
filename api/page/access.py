"""Who may see the page: whoever has its key, from this machine's own name for itself, and no other site's page.

The key comes with the address that ``viewcache page`` prints, and as a cookie after that. A browser sends the cookies
of 127.0.0.1 to every port of it, so the page also looks at where a request comes from: ``Host`` (a name of an attacker
that leads here is refused) and ``Sec-Fetch-Site`` (a page of another port is another site to us).
"""

import secrets
from http.cookies import CookieError, SimpleCookie

__all__ = ["Key", "is_own_host", "is_own_page"]

OWN_HOSTS = ("127.0.0.1", "localhost")
COOKIE = "viewcache_page"


class Key:
    """The secret of one run of the page."""

    def __init__(self, port: int) -> None:
        """Make one.

        Args:
            port: of the page; two pages of one machine have a cookie each.
        """
        self.token = secrets.token_urlsafe(32)
        self._cookie = f"{COOKIE}_{port}"

    def is_token(self, text: str) -> bool:
        """Whether a text is the token; takes as long for any text."""
        return secrets.compare_digest(text.encode(errors="replace"), self.token.encode())

    def is_in(self, cookies: str) -> bool:
        """Whether a request's cookies hold it."""
        try:
            found = SimpleCookie(cookies).get(self._cookie)
        except CookieError:
            return False
        return found is not None and self.is_token(found.value)

    def cookie(self) -> str:
        """The header that gives it to a browser, until that is closed; scripts do not see it."""
        return f"{self._cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"


def is_own_host(host: str) -> bool:
    """Whether a request's ``Host`` names this machine by itself; any port, since a tunnel may have another one."""
    name, _, port = host.partition(":")
    return name.lower() in OWN_HOSTS and (not port or port.isdecimal())


def is_own_page(site: str) -> bool:
    """Whether a request's ``Sec-Fetch-Site`` says that the page itself or a person made it; empty = no browser."""
    return site in ("", "none", "same-origin")
