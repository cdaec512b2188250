"""Reading a server's whole answer, up to a size: what another server sends must not fill this process."""

import httpx

MAX_ANSWER_BYTES = 32 << 20  # the service's largest, a thousand requests or all metrics, are a few megabytes


class AnswerTooLargeError(httpx.TransportError):
    """A whole answer was larger than this process takes; the connection is closed."""


async def read_whole(answer: httpx.Response, *, max_bytes: int = MAX_ANSWER_BYTES) -> bytes:
    """Return the body of an answer that is being streamed, and close it.

    Raises:
        AnswerTooLargeError: it goes on after `max_bytes`, or says that it will.
    """
    body = bytearray()
    try:
        length = answer.headers.get("content-length", "")
        if length.isdecimal() and int(length) > max_bytes:
            raise AnswerTooLargeError(f"the answer exceeds {max_bytes} bytes")
        async for data in answer.aiter_bytes():
            body += data
            if len(body) > max_bytes:
                raise AnswerTooLargeError(f"the answer exceeds {max_bytes} bytes")
    finally:
        await answer.aclose()
    return bytes(body)
