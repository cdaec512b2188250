"""The JavaScript client as a module in a page of another origin, over the real service."""

from pathlib import Path

from selenium.webdriver import Chrome
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from service.settings import ServiceSettings
from tests.support.loopback import serving
from tests.support.scripted_service import emits, serve

CLIENT = Path(__file__).resolve().parents[2] / "clients" / "javascript"
STREAM = """
const [url, done] = arguments;
import("/client/client.mjs")
  .then(async ({ Client }) => {
    const pieces = [];
    const { finish, usage, traceId } = await new Client({ url }).stream("Why?", (text) => pieces.push(text));
    done({ text: pieces.join(""), finish, tokens: usage.completion, traceId });
  })
  .catch((error) => done({ error: String(error) }));
"""


def test_client_module_in_a_page_of_another_origin_streams_an_answer(browser: Chrome) -> None:
    page = Starlette(
        routes=[
            Route("/", lambda _: HTMLResponse("<!doctype html><link rel=icon href=data:,><title>page</title>")),
            Mount("/client", StaticFiles(directory=CLIENT)),
        ]
    )
    said = "lúz ✓"
    with (
        serving(page) as origin,
        serve(script=emits(said.encode()), settings=ServiceSettings(cors_origins=(origin,))) as served,
    ):
        browser.get(origin)
        browser.get_log("browser")  # type: ignore[no-untyped-call]
        answer = browser.execute_async_script(STREAM, served.url)  # type: ignore[no-untyped-call]
        messages = browser.get_log("browser")  # type: ignore[no-untyped-call]
    assert answer | {"traceId": ""} == {"text": said, "finish": "stop", "tokens": len(said.encode()) + 1, "traceId": ""}
    assert len(answer["traceId"]) == 32
    assert messages == []
