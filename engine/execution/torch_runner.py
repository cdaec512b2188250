"""The executors on torch and their sampler, behind one function: importing this module imports torch.

The native executor does without, which saves its process some 190 MB and seconds at the start.
"""

import torch

from engine.config import EngineConfig, ExecutorName, SchedulerConfig
from engine.errors import ConfigError
from engine.execution.executor import Executor, ModelRunner
from engine.execution.reference import ReferenceExecutor
from engine.execution.torch_executor import TorchExecutor
from engine.model.load import LoadedModel
from engine.sampling.sampler import TorchSampler


def make_torch_runner(
    name: ExecutorName,
    model: LoadedModel,
    config: EngineConfig,
    scheduling: SchedulerConfig,
    eos_token_ids: tuple[int, ...],
) -> tuple[ModelRunner[torch.Tensor], str, str, int]:
    """Return the `reference` or `torch` runner with the names of dtype and device, and the threads, that it uses.

    Raises:
        ConfigError: a setting that this executor can't meet.
    """
    num_blocks, block_size = scheduling.num_kv_blocks, scheduling.block_size
    executor: Executor[torch.Tensor]
    if name == "reference":
        if config.dtype not in ("auto", "float32"):
            raise ConfigError(f"`dtype` of the reference executor must be float32, got {config.dtype}")
        if config.device not in ("auto", "cpu"):
            raise ConfigError(f"`device` of the reference executor must be cpu, got {config.device}")
        executor = ReferenceExecutor(model.spec, model.weights, num_blocks=num_blocks, block_size=block_size)
        dtype, device, threads = "float32", "cpu", torch.get_num_threads()
    else:
        executor = on_torch = TorchExecutor(
            model.spec,
            model.weights,
            num_blocks=num_blocks,
            block_size=block_size,
            dtype=config.dtype,
            device=config.device,
            threads=config.threads,
        )
        dtype, device, threads = on_torch.dtype_name, str(on_torch.device), on_torch.num_threads
    return ModelRunner(executor, TorchSampler(model.spec.vocab_size, eos_token_ids)), dtype, device, threads
