"""A closed loop around OpenVINO GenAI's continuous batching, in its own process; run by the peer's Python, not ours.

Reads one job a line on standard input and answers each with one line on standard output, both JSON. OpenVINO GenAI
ships no HTTP server, so nothing of HTTP is in its figures: the stronger form of this peer.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from loadtest.window import Window


class Request:
    """One running request and when its tokens came."""

    def __init__(self, pipeline: Any, number: int, prompt: list[int], config: Any) -> None:
        self.prompt = prompt
        self.token_ids: list[int] = []
        self.token_times: list[float] = []
        self.started = time.perf_counter()
        self.ended: float | None = None
        self.handle = pipeline.add_request(number, openvino.Tensor(np.array([prompt], dtype=np.int64)), config)

    def read(self, now: float, max_tokens: int) -> None:
        """Take what the last step added."""
        if self.handle.can_read():
            for output in self.handle.read().values():
                self.token_ids += output.generated_ids
                self.token_times.append(now)
        if len(self.token_ids) >= max_tokens:
            self.ended = now

    def record(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("prompt", "token_ids", "token_times", "started", "ended")}


def run_job(pipeline: Any, job: dict[str, Any], first_number: int) -> dict[str, Any]:
    """Keep `concurrency` requests running until the window is closed or all `num_requests` are done."""
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = config.min_new_tokens = job["max_tokens"]
    config.ignore_eos = True
    config.do_sample = False
    prompts = iter(job["prompts"])
    num_left = job["num_requests"]
    started, cpu_started = time.perf_counter(), time.process_time()
    window = Window(started, warm_up_s=job["warm_up_s"], window_s=job["window_s"], min_requests=job["min_requests"])
    running: list[Request] = []
    requests: list[Request] = []
    while window.closed is None:
        while len(running) < job["concurrency"] and num_left:
            running.append(Request(pipeline, first_number + len(requests), next(prompts), config))
            requests.append(running[-1])
            num_left -= 1
        if not running:
            break
        pipeline.step()
        now = time.perf_counter()
        for request in running:
            request.read(now, job["max_tokens"])
            if request.ended is not None:
                window.request_ended(now)
        running = [request for request in running if request.ended is None]
    stopped, cpu_stopped = time.perf_counter(), time.process_time()
    for request in running:
        request.handle.cancel()
    while pipeline.has_non_finished_requests():
        pipeline.step()
    return {
        "started": started,
        "stopped": stopped,
        "opened": window.opened,
        "closed": window.closed,
        "cpu_s": cpu_stopped - cpu_started,
        "requests": [request.record() for request in requests],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--prefix-cache", action="store_true")
    args = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")  # the library may print on standard output
    os.dup2(2, 1)
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.max_num_batched_tokens = 512
    scheduler.enable_prefix_caching = args.prefix_cache
    pipeline = openvino_genai.ContinuousBatchingPipeline(
        args.model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": args.threads}
    )
    print(json.dumps({"version": openvino_genai.__version__}), file=answers, flush=True)
    num_requests = 0
    for line in sys.stdin:
        answer = run_job(pipeline, json.loads(line), num_requests)
        num_requests += len(answer["requests"])
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
