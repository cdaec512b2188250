"""The encrypted way to a target: its certificate must be good for what httpx trusts, which `SSL_CERT_FILE` replaces."""

import ssl

import httpx


def tls_context(url: str) -> ssl.SSLContext | None:
    """Return what a connection to an https address needs; None for a plain one.

    Raises:
        OSError: `SSL_CERT_FILE` names no readable file of certificates.
    """
    return httpx.create_ssl_context() if url.startswith("https://") else None
