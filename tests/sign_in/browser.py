"""A browser without a window: follows redirects, keeps cookies, fills in the provider's forms."""

from __future__ import annotations

import html
import http.cookiejar
import re
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from urllib.parse import urlencode, urljoin


@dataclass(frozen=True)
class Page:
    url: str
    status: int
    text: str


class Browser:
    """
    Args:
        certificate: who signed the server's.
        person: by which name it signs in at the provider.
        confirms: whether its user says that they began a sign-in for which a program waits.
    """

    def __init__(self, certificate: str, person: str, confirms: bool = True) -> None:
        context = ssl.create_default_context(cafile=certificate)
        self.cookies = http.cookiejar.CookieJar()
        self._person, self.confirms = person, confirms
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(self.cookies),
            urllib.request.HTTPSHandler(context=context),
        )

    def open(self, url: str, form: dict[str, str] | None = None) -> Page:
        content = urlencode(form).encode() if form is not None else None
        try:
            with self._opener.open(url, content, timeout=90) as response:
                return Page(response.url, response.status, response.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Page(error.url, error.code, error.read().decode())

    def sign_in(self, url: str) -> Page:
        """From an address to the page behind the provider's forms."""
        page = self.open(url)
        for _ in range(4):
            action = re.search(r'<form[^>]*action="([^"]+)"', page.text)
            if action is None or "/interaction/" not in page.url:
                return self._confirm(page) if self.confirms else page
            is_login = 'name="login"' in page.text
            form = {"prompt": "login", "login": self._person, "password": "any"}
            target = urljoin(page.url, html.unescape(action[1]))
            page = self.open(target, form if is_login else {"prompt": "consent"})
        return page

    def _confirm(self, page: Page) -> Page:
        """Say that a sign-in for which a program waits was begun by its user."""
        link = re.search(r'<a href="(http://127\.0\.0\.1:[^"]+)">Yes', page.text)
        return page if link is None else self.open(html.unescape(link[1]))
