"""Measure one configuration and say what was found."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.execution.native_executor import FLOAT_ENCODINGS, VOCABULARY
from engine.execution.step_demand import StepDemand, step_demand
from engine.kernels.build import find_library
from engine.kernels.ceilings import bfloat16_peak, integer_peak, read_bandwidth
from engine.kernels.native_library import NativeLibrary
from engine.llm import LLM
from engine.messages import EngineInfo
from engine.model.load import load_model
from engine.model.weights import WeightTensor
from loadtest.corpus import docstrings
from loadtest.machine import Machine
from loadtest.machine import fingerprint as machine_fingerprint
from loadtest.prompts import PromptSource
from service.benchmark.baseline import Run, fingerprint
from service.benchmark.in_process import DECODES, PREFILL, StepPoint, measure_decode, measure_prefill
from service.benchmark.over_http import STREAMS, ServedPoint, measure_served
from service.benchmark.roofline import Ceilings, RooflineShare, roofline_share

TEXT_CHARACTERS = 400_000
_MEBI = 1 << 20


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """A shape of step with what it needs at least and what share of the ceilings that is; None without ceilings."""

    point: StepPoint
    demand: StepDemand
    share: RooflineShare | None


@dataclass(frozen=True, slots=True)
class BenchReport:
    """What was measured, on what."""

    machine: Machine
    info: EngineInfo
    ceilings: Ceilings | None
    points: list[MeasuredPoint]
    served: list[ServedPoint]

    @property
    def run(self) -> Run:
        """The figures that a baseline keeps: shares where there are ceilings, which a drifting host moves less."""
        figures = {
            each.point.name: each.share.value if each.share else each.point.num_tokens / each.point.step_median_s
            for each in self.points
        }
        figures |= {f"{each.streams} streams over HTTP": each.output_tokens_per_s for each in self.served}
        machine, info = self.machine, self.info
        return Run(
            fingerprint(
                {
                    "cpu": machine.cpu, "cores": machine.cores, "threads": machine.threads, "model": info.model,
                    "executor": info.executor, "dtype": info.dtype, "ceilings": self.ceilings is not None,
                    "instruction_set": self.ceilings.instruction_set if self.ceilings else "",
                }
            ),
            figures,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "machine": asdict(self.machine),
            "engine": {name: getattr(self.info, name) for name in ("model", "executor", "dtype", "device", "threads")},
            "ceilings": asdict(self.ceilings) if self.ceilings else None,
            "steps": [
                {
                    "name": each.point.name,
                    "steps": len(each.point.execute_s),
                    "execute_ms": round(each.point.execute_median_s * 1e3, 3),
                    "step_ms": round(each.point.step_median_s * 1e3, 3),
                    "tokens_per_s": round(each.point.num_tokens / each.point.step_median_s, 1),
                    **asdict(each.demand),
                    "bandwidth_share": round(each.share.bandwidth, 4) if each.share else None,
                    "integer_share": round(each.share.integer, 4) if each.share else None,
                    "bfloat16_share": round(each.share.bfloat16, 4) if each.share else None,
                }
                for each in self.points
            ],
            "served": [
                {
                    "streams": each.streams,
                    "output_tokens_per_s": round(each.output_tokens_per_s, 1),
                    **asdict(each.latencies),
                }
                for each in self.served
            ],
        }

    def to_text(self) -> str:
        """Return the report as lines for a terminal."""
        machine, info = self.machine, self.info
        lines = [f"{info.model}: {info.executor}, {info.dtype}, {info.threads} threads on {machine.cpu}"]
        if self.ceilings:
            lines.append(
                f"ceilings: {self.ceilings.read_bytes_per_s / 1e9:.1f} GB/s read, "
                f"{self.ceilings.integer_ops_per_s / 1e9:.0f} GOP/s in 8-bit integers "
                f"({self.ceilings.instruction_set}), {self.ceilings.bfloat16_ops_per_s / 1e9:.0f} GFLOP/s in bfloat16 "
                f"({self.ceilings.bfloat16_instruction})"
            )
        for each in self.points:
            point = each.point
            line = (
                f"{point.name:>11}: step {point.step_median_s * 1e3:7.2f} ms, executor "
                f"{point.execute_median_s * 1e3:7.2f} ms, {point.num_tokens / point.step_median_s:7.0f} tokens/s, "
                f"{each.demand.num_bytes / _MEBI:.0f} MiB and {each.demand.operations / 1e9:.2f} GOP a step"
            )
            if each.share:
                line += (
                    f"; roofline share {each.share.value:.0%} ({each.share.binding}; bandwidth "
                    f"{each.share.bandwidth:.0%}, integer peak {each.share.integer:.0%}, bfloat16 peak "
                    f"{each.share.bfloat16:.0%})"
                )
            lines.append(f"{line}; n = {len(point.execute_s)}")
        for served in self.served:
            found = served.latencies
            lines.append(
                f"{served.streams:>3} streams over HTTP: {served.output_tokens_per_s:.0f} output tokens/s, TTFT p50 "
                f"{_ms(found.ttft_p50_ms)}, ITL p50 {_ms(found.itl_p50_ms)}, p99 {_ms(found.itl_p99_ms)}; "
                f"{found.num_requests} requests"
            )
        return "\n".join(lines)


def measure(config: EngineConfig, *, num_steps: int, url: str, api_key: str, seconds: float) -> BenchReport:
    """Load the model, time its steps, and measure the server at `url` unless that is empty.

    Raises:
        ModelLoadError, ConfigError: it can't be loaded.
        RuntimeError: a request to the server failed.
    """
    model = load_model(config.model)
    settings = {name: getattr(config, name) for name in config.__struct_fields__}
    # A few equal first tokens would make a prefill shorter; a budget of no given size would cut it in pieces.
    budget = config.max_num_batched_tokens or max(PREFILL, config.max_num_seqs)
    llm = LLM(**{**settings, "prefix_cache": False, "max_num_batched_tokens": budget})
    info = llm.info
    prompts = PromptSource(llm.tokenizer.encode("\n\n".join(docstrings(TEXT_CHARACTERS))), seed=1)
    points = [measure_decode(llm, prompts, num_seqs, num_steps=num_steps) for num_seqs in DECODES]
    if info.max_num_batched_tokens >= PREFILL and info.max_model_len > PREFILL:
        points.append(measure_prefill(llm, prompts, PREFILL, num_steps=max(3, num_steps // 4)))
    ceilings = _ceilings(info)
    in_floats = _in_floats(config, info)
    kv_token_bytes = info.kv_cache_bytes // (info.num_kv_blocks * info.block_size)
    measured = []
    for point in points:
        demand = step_demand(
            model.spec, model.weights, num_tokens=point.num_tokens, num_logits=point.num_logits,
            num_kv_tokens=point.num_kv_tokens, kv_token_bytes=kv_token_bytes, in_floats=in_floats,
        )  # fmt: skip
        share = roofline_share(demand, point.execute_median_s, ceilings) if ceilings else None
        measured.append(MeasuredPoint(point, demand, share))
    served = [measure_served(url, prompts, streams, seconds=seconds, api_key=api_key) for streams in STREAMS if url]
    return BenchReport(machine_fingerprint(threads=info.threads), info, ceilings, measured, served)


def _in_floats(config: EngineConfig, info: EngineInfo) -> Callable[[WeightTensor], bool]:
    """Return which weights the engine multiplies in floats; the others are in integers."""
    if info.executor != "native" or config.dtype == "float32":
        return lambda tensor: True
    if config.dtype == "int8":
        return lambda tensor: False
    all_in_floats = config.dtype == "bfloat16"
    return lambda tensor: tensor.encoding in FLOAT_ENCODINGS or (all_in_floats and tensor.name not in VOCABULARY)


def _ceilings(info: EngineInfo) -> Ceilings | None:
    """Measure the machine with the engine's number of threads; None where the engine isn't on the CPU or not built."""
    library_path = find_library()
    if info.device != "cpu" or library_path is None:
        return None
    library = NativeLibrary(library_path)
    name = library.instruction_set()
    if name is None:
        raise ConfigError("no instruction set of the native kernels fits this machine")
    bfloat16_ops_per_s, bfloat16_instruction = bfloat16_peak(library, threads=info.threads)
    return Ceilings(
        read_bytes_per_s=read_bandwidth(library, threads=info.threads),
        integer_ops_per_s=integer_peak(library, threads=info.threads),
        bfloat16_ops_per_s=bfloat16_ops_per_s,
        instruction_set=name,
        bfloat16_instruction=bfloat16_instruction,
    )


def _ms(milliseconds: float | None) -> str:
    return "too few samples" if milliseconds is None else f"{milliseconds:.1f} ms"
