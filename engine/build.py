"""The engine's composition root: a configuration becomes a core that is ready to step."""

from collections.abc import Callable
from typing import Any

from engine.clock import Clock
from engine.config import EngineConfig, ExecutorName, KvDtypeName, SchedulerConfig
from engine.core import EngineCore
from engine.errors import ConfigError
from engine.events import EngineStarted, EventLog
from engine.execution.cuda_presence import is_cuda_available
from engine.execution.executor import ModelRunner
from engine.execution.kv_dtype import best_half, kv_bytes_per_token, resolve_kv_dtype
from engine.execution.native_executor import NativeExecutor
from engine.execution.physical_cores import count_physical_cores
from engine.kernels.build import find_library
from engine.kernels.native_library import NativeLibrary
from engine.kv.block_manager import BlockManager
from engine.messages import EngineInfo
from engine.model.catalog import CATALOG
from engine.model.load import LoadedModel, load_model
from engine.model.spec import DecoderSpec
from engine.quiet_events import QuietEventLog
from engine.sampling.host_scores import host_sampler
from engine.sampling.native_draw import NativeDraw
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from engine.sequence import EngineRequest
from engine.text.tokenizer import build_tokenizer

AnyCore = EngineCore[Any]  # of logits in the executor's own kind of array
AnyRunner = ModelRunner[Any]
Progress = Callable[[str], None]

_TOKENS_A_SEAT = 136  # of a pool of no given size
_MOST_DERIVED_BYTES = 1 << 30
_STEP_TOKENS = {"native": 256}  # of no given size; see docs/adr/0024-tokens-a-step.md
_STEP_TOKENS_ELSEWHERE = 512
_LEAST_PREFILL = 64  # what a derived budget leaves for prompts when every seat decodes


def build_core(config: EngineConfig, clock: Clock, progress: Progress) -> tuple[AnyCore, EngineInfo]:
    """Load the configured model and build a core around it.

    Args:
        config: what to load and how to run it.
        clock: of events and durations.
        progress: told the name of each stage as it begins.

    Raises:
        ModelLoadError: the model can't be used.
        ConfigError: a setting can't be met.
    """
    started = clock.now()
    progress("opening the model")
    return assemble_core(load_model(config.model), config, clock=clock, progress=progress, started=started)


def assemble_core(
    model: LoadedModel, config: EngineConfig, *, clock: Clock, progress: Progress, started: float
) -> tuple[AnyCore, EngineInfo]:
    """Build a core around a model that is open; `started` is when loading began, in monotonic seconds."""
    spec = model.spec
    name = choose_executor(config)
    kv_dtype = _resolve_kv_dtype(config, name)
    scheduling = scheduler_config(config, spec)
    eos_token_ids = tuple(sorted(build_tokenizer(model.tokenizer).eos_token_ids))
    progress(f"loading weights for the {name} executor")
    runner, dtype, device, threads = _make_runner(name, model, config, scheduling, kv_dtype, eos_token_ids)
    progress("warming up")
    _warm_up(runner, scheduling, clock)

    events = EventLog(clock) if config.instruments else QuietEventLog(clock)
    core = EngineCore(
        Scheduler(scheduling, BlockManager(scheduling, events), events, eos_token_ids), runner, events, clock
    )
    events.emit(
        EngineStarted,
        model=config.model if config.model in CATALOG else model.name,
        executor=runner.executor.name,
        block_size=scheduling.block_size,
        num_blocks=scheduling.num_kv_blocks,
        max_num_seqs=scheduling.max_num_seqs,
        max_num_batched_tokens=scheduling.max_num_batched_tokens,
        max_model_len=scheduling.max_request_tokens,
        prefix_cache=scheduling.prefix_cache,
    )
    num_slots = scheduling.num_kv_blocks * scheduling.block_size
    info = EngineInfo(
        model=config.model,
        architecture=spec.architecture,
        num_parameters=model.weights.num_parameters,
        dtype=dtype,
        executor=runner.executor.name,
        device=device,
        threads=threads,
        vocab_size=spec.vocab_size,
        max_model_len=scheduling.max_request_tokens,
        block_size=scheduling.block_size,
        num_kv_blocks=scheduling.num_kv_blocks,
        kv_dtype=kv_dtype,
        kv_cache_bytes=num_slots * kv_bytes_per_token(spec, kv_dtype),
        max_num_seqs=scheduling.max_num_seqs,
        max_num_batched_tokens=scheduling.max_num_batched_tokens,
        prefix_cache=scheduling.prefix_cache,
        overflow=scheduling.overflow,
        eos_token_ids=eos_token_ids,
        load_s=clock.now() - started,
    )
    return core, info


def scheduler_config(config: EngineConfig, spec: DecoderSpec) -> SchedulerConfig:
    """Derive the scheduler's settings from the engine's and the model's shape.

    The pool is `num_kv_blocks`, or else what `kv_cache_bytes` holds, but no more than `max_num_seqs` sequences of
    full length can use. With neither it is small enough that the default model, service included, stays under 0.6 GB.
    """
    max_model_len = config.max_model_len or spec.max_position_embeddings
    if max_model_len > spec.max_position_embeddings:
        raise ConfigError(
            f"`max_model_len` must be at most {spec.max_position_embeddings}, the context this model was trained "
            f"for, got {max_model_len}"
        )
    num_kv_blocks, executor = config.num_kv_blocks, choose_executor(config)
    step_tokens = config.max_num_batched_tokens or max(
        _STEP_TOKENS.get(executor, _STEP_TOKENS_ELSEWHERE), config.max_num_seqs + _LEAST_PREFILL
    )
    if not num_kv_blocks:
        kv_dtype = _resolve_kv_dtype(config, executor)
        block_bytes = config.block_size * kv_bytes_per_token(spec, kv_dtype)
        pool_bytes = config.kv_cache_bytes
        if not pool_bytes:
            num_tokens = max(max_model_len, _TOKENS_A_SEAT * config.max_num_seqs)
            pool_bytes = max(block_bytes, min(_MOST_DERIVED_BYTES, num_tokens * kv_bytes_per_token(spec, kv_dtype)))
        if pool_bytes < block_bytes:
            raise ConfigError(
                f"`kv_cache_bytes` must be at least {block_bytes}, one block of this model, got {config.kv_cache_bytes}"
            )
        useful = config.max_num_seqs * -(-max_model_len // config.block_size)
        num_kv_blocks = min(pool_bytes // block_bytes, useful)
    return SchedulerConfig(
        block_size=config.block_size,
        num_kv_blocks=num_kv_blocks,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=step_tokens,
        max_model_len=max_model_len,
        prefix_cache=config.prefix_cache,
        overflow=config.overflow,
    )


def choose_executor(config: EngineConfig) -> ExecutorName:
    """Return the executor that `auto` means: on CPUs the native one if its kernels are built and fast, else torch's."""
    if config.executor != "auto":
        return config.executor
    if config.dtype == "int8":
        return "native"
    if not _runs_on_cpu(config) or config.dtype == "float16":
        return "torch"
    path = find_library()
    instruction_set = NativeLibrary(path).instruction_set() if path else None
    # The portable kernels are slower than torch's; they are there to be asked for. Only tiles multiply bfloat16.
    is_fast = instruction_set == "amx" if config.dtype == "bfloat16" else instruction_set not in (None, "portable")
    return "native" if is_fast else "torch"


def _resolve_kv_dtype(config: EngineConfig, executor: ExecutorName) -> KvDtypeName:
    library = find_library() if executor == "native" else None
    half = best_half(NativeLibrary(library).instruction_set() if library else None)
    return resolve_kv_dtype(config, executor, on_cpu=_runs_on_cpu(config), native_half=half)


def _runs_on_cpu(config: EngineConfig) -> bool:
    return config.device == "cpu" or (config.device == "auto" and not is_cuda_available())


def _make_runner(
    name: ExecutorName,
    model: LoadedModel,
    config: EngineConfig,
    scheduling: SchedulerConfig,
    kv_dtype: KvDtypeName,
    eos_token_ids: tuple[int, ...],
) -> tuple[AnyRunner, str, str, int]:
    """Return executor and sampler, with the names of dtype and device and the number of threads that they use."""
    if name == "native":
        library = _native_library()
        native = _make_native_executor(model, config, scheduling, kv_dtype, library)
        sampler = host_sampler(model.spec.vocab_size, eos_token_ids, NativeDraw(library))
        return ModelRunner(native, sampler), native.dtype_name, "cpu", native.num_threads
    from engine.execution.torch_runner import make_torch_runner  # here, as the native executor does without torch

    return make_torch_runner(name, model, config, scheduling, eos_token_ids)


def _native_library() -> NativeLibrary:
    library = find_library()
    if library is None:
        raise ConfigError("`executor` native needs its kernels built: run `python3 scripts/build_kernels.py`")
    return NativeLibrary(library)


def _make_native_executor(
    model: LoadedModel,
    config: EngineConfig,
    scheduling: SchedulerConfig,
    kv_dtype: KvDtypeName,
    library: NativeLibrary,
) -> NativeExecutor:
    if config.dtype == "float16":
        raise ConfigError("`dtype` of the native executor must be auto, float32, bfloat16 or int8, got float16")
    if config.device not in ("auto", "cpu"):
        raise ConfigError(f"`device` of the native executor must be cpu, got {config.device}")
    threads = config.threads or count_physical_cores()
    return NativeExecutor(
        model.spec,
        model.weights,
        library=library,
        num_blocks=scheduling.num_kv_blocks,
        block_size=scheduling.block_size,
        max_tokens=scheduling.max_num_batched_tokens,
        max_positions=scheduling.max_request_tokens,
        threads=threads,
        exact=config.dtype == "float32",
        int8_weights=config.dtype == "int8",
        bfloat16=config.dtype == "bfloat16",
        kv_dtype=kv_dtype,
    )


def _warm_up(runner: AnyRunner, scheduling: SchedulerConfig, clock: Clock) -> None:
    """Run one short request through the runner, with bookkeeping that is thrown away; first steps are slow."""
    events = EventLog(clock)
    core = EngineCore(Scheduler(scheduling, BlockManager(scheduling, events), events), runner, events, clock)
    num_tokens = min(4, scheduling.max_request_tokens)
    core.add(
        EngineRequest(
            request_id="warm-up",
            prompt_token_ids=[0] * max(1, num_tokens - 2),
            params=SamplingParams(max_tokens=min(2, num_tokens - 1), temperature=0.0, ignore_eos=True),
            arrival=clock.now(),
        )
    )
    while core.has_work:
        core.step()
