"""The Load tab's routes.

POST   /api/load/runs              start one; the one that runs is stopped first
GET    /api/load/runs              all, without requests and timelines
GET    /api/load/runs/ID           one, with its timelines
GET    /api/load/runs/ID/live      server-sent events while it runs
GET    /api/load/runs/ID/export.json, export.csv    everything that is kept, for a file
DELETE /api/load/runs/ID           stop it if it runs, forget it if it is over
"""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dashboard.json_post import error_response, is_of_this_page, read_json
from dashboard.load_order import MAX_TRACE_CHARS, LoadOrder
from dashboard.load_runs import LoadRuns
from dashboard.streaming import SSE_HEADERS, ClosingStream
from loadtest.errors import LoadTestError

MAX_ORDER_BYTES = 2 * MAX_TRACE_CHARS


class LoadRoutes:
    """HTTP over LoadRuns."""

    def __init__(self, runs: LoadRuns) -> None:
        self._runs = runs

    def routes(self) -> list[Route]:
        one = "/load/runs/{run_id}"
        return [
            Route("/load/runs", self.start, methods=["POST"]),
            Route("/load/runs", self.list, methods=["GET"]),
            Route(one, self.one, methods=["GET"]),
            Route(one, self.delete, methods=["DELETE"]),
            Route(f"{one}/live", self.live, methods=["GET"]),
            Route(f"{one}/export.{{form}}", self.export, methods=["GET"]),
        ]

    async def start(self, request: Request) -> Response:
        order = await read_json(request, LoadOrder, max_bytes=MAX_ORDER_BYTES)
        if isinstance(order, Response):
            return order
        try:
            record = await self._runs.start(order)
        except LoadTestError as error:
            return error_response(400, "invalid_request_error", error.message)
        return _json(record.outline(), status=201)

    async def list(self, request: Request) -> Response:
        return _json({"runs": [record.outline() for record in self._runs.records]})

    async def one(self, request: Request) -> Response:
        record = self._runs.get(request.path_params["run_id"])
        return _missing() if record is None else _json(record.without_requests())

    async def delete(self, request: Request) -> Response:
        if not is_of_this_page(request):
            return error_response(403, "permission_error", "requests from other sites are refused")
        run_id = request.path_params["run_id"]
        if self._runs.get(run_id) is None:
            return _missing()
        if self._runs.is_running(run_id):
            await self._runs.stop(run_id)
            record = self._runs.get(run_id)
            return _missing() if record is None else _json(record.outline())
        await self._runs.forget(run_id)
        return Response(status_code=204)

    async def live(self, request: Request) -> Response:
        run_id = request.path_params["run_id"]
        if self._runs.get(run_id) is None:
            return _missing()
        headers = {"content-type": "text/event-stream; charset=utf-8", **SSE_HEADERS}
        return ClosingStream(self._runs.watch(run_id), headers=headers)

    async def export(self, request: Request) -> Response:
        record, form = self._runs.get(request.path_params["run_id"]), request.path_params["form"]
        if record is None or form not in ("json", "csv"):
            return _missing()
        headers = {"content-disposition": f'attachment; filename="{record.id}.{form}"', "cache-control": "no-store"}
        if form == "csv":
            return Response(record.csv(), media_type="text/csv", headers=headers)
        return Response(msgspec.json.encode(record), media_type="application/json", headers=headers)


def _json(content: object, *, status: int = 200) -> Response:
    headers = {"cache-control": "no-store"}
    return Response(msgspec.json.encode(content), status, media_type="application/json", headers=headers)


def _missing() -> Response:
    return error_response(404, "not_found_error", "there is no such load")
