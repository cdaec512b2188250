"""HTTP to a collector: an answer that sends us elsewhere is a refusal.

The exporters follow no redirect, and take every status below 400 for a delivery; what a proxy answers with 302 would
count as delivered and be gone.
"""

from typing import Any, Final

import requests

FIRST_REDIRECT: Final = 300


def otlp_session() -> requests.Session:
    """Return a session whose requests fail on redirects."""
    session = requests.Session()
    session.hooks["response"].append(_refuse_redirect)
    return session


def _refuse_redirect(response: requests.Response, *_: Any, **__: Any) -> None:
    """Raise RequestException; statuses from 400 on are refusals without our help."""
    if FIRST_REDIRECT <= response.status_code < 400:
        response.close()
        raise requests.RequestException(f"the collector answers with status {response.status_code}, a redirect")
