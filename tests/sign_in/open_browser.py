"""What `yard login` starts as the browser: signs in as TORCHYARD_TEST_PERSON."""

from __future__ import annotations

import os
import sys

from sign_in.browser import Browser

if __name__ == "__main__":
    person = os.environ["TORCHYARD_TEST_PERSON"]
    page = Browser(os.environ["TORCHYARD_TEST_CERTIFICATE"], person).sign_in(sys.argv[1])
    print(page.status, page.url.partition("?")[0])
