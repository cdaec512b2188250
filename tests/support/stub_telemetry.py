"""The telemetry routes of the stand-in service, over the made-up load's own recorder."""

import time
from dataclasses import replace
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.config import EngineConfig
from engine.kernels.lab.report import BackendState, CallCost, Check, Conditions, Report, Timing
from service.config_view import config_answer
from service.flag_view import FlagView
from service.settings import ServiceSettings
from tests.support.synthetic_load import SyntheticLoad

HOSTILE_TEXT = "<img src=x onerror=alert(1)><script>alert(1)</script>\u202e evil \u0007" + "A" * 100_000

FLAGS = (
    FlagView(
        part="service",
        flag="--max-queue",
        variable="PELLUCID_MAX_QUEUE",
        value=17,
        source="flag",
        default="256",
        text="choices that may wait beyond those that run; more are refused with 429",
        choices=[],
    ),
    FlagView(
        part="engine",
        flag="--dtype",
        variable="PELLUCID_DTYPE",
        value="auto",
        source="default",
        default="auto",
        text="of weights and computation",
        choices=["auto", "float32"],
    ),
)


class StubTelemetry:
    """Attributes:
    cancelled: ids of the requests that were cancelled.
    hostile: details carry text that a page must not take for markup.
    """

    def __init__(self, load: SyntheticLoad) -> None:
        self._load = load
        self.cancelled: list[str] = []
        self.hostile = False
        self._kernels_asked = 0

    def routes(self) -> list[Route]:
        return [
            Route("/telemetry/requests", self._requests),
            Route("/telemetry/requests/{request_id}", self._request),
            Route("/telemetry/requests/{request_id}/cancel", self._cancel, methods=["POST"]),
            Route("/telemetry/steps", self._steps),
            Route("/telemetry/config", self._config),
            Route("/kernels", self._kernels),
            Route("/metrics", self._metrics),
        ]

    def newest_ended(self) -> str:
        """Return the id of the request that ended last."""
        rows = self._load.recorder.requests(num_recent=1)["recent"]
        return str(rows[0]["request_id"])

    def _catch_up(self) -> None:
        self._load.run_until(time.monotonic())

    async def _requests(self, request: Request) -> Response:
        self._catch_up()
        num_recent = int(request.query_params.get("recent", 200))
        return JSONResponse(self._load.recorder.requests(num_recent=num_recent))

    async def _request(self, request: Request) -> Response:
        self._catch_up()
        request_id = request.path_params["request_id"]
        detail = self._load.recorder.request(request_id)
        if detail is None:
            return JSONResponse({"error": {"message": f"no request {request_id} is known here"}}, 404)
        if self.hostile:
            text = {"before": HOSTILE_TEXT, "expected": "<b>x</b>", "actual": "\u202e", "after": HOSTILE_TEXT}
            detail["message"] = HOSTILE_TEXT
            divergence = {"position": 4, "block_number": 0, "block_id": 1, "expected_token": 7, "actual_token": 8}
            found = {"num_prompt_tokens": 9, "num_matched_tokens": 4, "why": "diverged", "explanation": "<i>no</i>"}
            detail["cache"] = {**found, "divergence": {**divergence, "text": text}}
        return JSONResponse(detail)

    async def _cancel(self, request: Request) -> Response:
        self.cancelled.append(request.path_params["request_id"])
        return JSONResponse({"request_id": self.cancelled[-1], "status": "cancelling"}, 202)

    async def _steps(self, request: Request) -> Response:
        self._catch_up()
        since, limit = (int(request.query_params.get(name, 0)) for name in ("since", "limit"))
        return JSONResponse(self._load.recorder.step_table(since, limit=limit or 1000))

    async def _config(self, request: Request) -> Response:
        answer = config_answer(
            EngineConfig(model="smol"), replace(ServiceSettings(), flags=FLAGS), running=None, models=("smol",)
        )
        return JSONResponse(msgspec.to_builtins(answer))

    async def _kernels(self, request: Request) -> Response:
        self._kernels_asked += 1
        if self._kernels_asked == 1:
            return JSONResponse({"state": "measuring", "progress": "checking"}, 202, headers={"retry-after": "1"})
        return JSONResponse({"state": "ready", "report": msgspec.to_builtins(kernel_report())})

    async def _metrics(self, request: Request) -> Response:
        self._catch_up()
        body, content_type = self._load.metrics.render()
        return Response(body, media_type=content_type)


def kernel_report() -> Report:
    """Return what a laboratory could have found."""
    conditions = Conditions("x86_64 (64-bit)", 2, 1, 19, 0.4, "avx2", "3.11", "2.4", "2.13", "g++ 12", 1.7e9, 3.5)
    common: dict[str, Any] = {"kernel": "rms_norm", "shape": "[1, 576]"}
    return Report(
        conditions=conditions,
        backends=[
            BackendState("numpy", "available", "", "2.4", "cpu", ["rms_norm"]),
            BackendState("triton", "unavailable", "no CUDA device", "", "", []),
        ],
        checks=[
            Check(
                **common,
                backend=backend,
                oracle="float64",
                max_abs_error=1e-8,
                max_rel_error=1e-7,
                tolerance=1e-5,
                passed=True,
            )
            for backend in ("numpy", "ctypes")
        ],
        timings=[
            Timing(
                **common,
                backend=backend,
                phase="decode",
                num_samples=7,
                calls_per_sample=32,
                median_us=median,
                p25_us=median * 0.9,
                p75_us=median * 1.1,
                min_us=median * 0.8,
            )
            for backend, median in (("numpy", 22.5), ("ctypes", 9.5))
        ],
        call_costs=[CallCost("ctypes", "none", "released", 7, 10_000, 210.0, 200.0, 220.0)],
    )
