"""One life of the engine on its end of the socket, in whatever process or thread.

Configure comes in; LoadProgress stages go out while the model loads; EngineInfo goes out after a warm-up step; then the
loop. A model or a setting that can't be used is one Fatal message and exit code 2, without a traceback.
"""

import logging
import socket
from collections.abc import Callable

from engine.channel import ChannelClosedError, ChannelError, EngineChannel
from engine.clock import Clock
from engine.config import EngineConfig
from engine.engine_loop import EXIT_OK, EngineLoop, SteppableCore
from engine.errors import ConfigError, ModelLoadError
from engine.messages import Configure, EngineInfo, Fatal, LoadProgress

EXIT_LOAD_RAISED = 1
EXIT_CANNOT_LOAD = 2

log = logging.getLogger(__name__)

Progress = Callable[[str], None]
BuildCore = Callable[[EngineConfig, Clock, Progress], tuple[SteppableCore, EngineInfo]]


def serve(sock: socket.socket, *, build: BuildCore, clock: Clock) -> int:
    """Live one engine life on a connected socket; return the exit code.

    Args:
        sock: the engine's end of the pair; the caller closes it.
        build: makes the core; raises ModelLoadError or ConfigError for what can't be loaded.
        clock: stamps heartbeats and events.
    """
    channel = EngineChannel(sock)
    try:
        config = _receive_config(channel)

        def progress(stage: str) -> None:
            channel.send(LoadProgress(stage=stage))

        try:
            core, info = build(config, clock, progress)
        except (ModelLoadError, ConfigError) as error:
            channel.send(Fatal(error_type=error.error_type, message=error.message))
            return EXIT_CANNOT_LOAD
        except ChannelClosedError:
            raise
        except Exception as error:  # outermost: a loader's bug reaches the client as a message, not as a silence
            log.error("loading the model raised", exc_info=error)
            channel.send(Fatal(error_type="internal_error", message=f"{type(error).__name__}: {error}"))
            return EXIT_LOAD_RAISED
        channel.send(core.collect())  # engine_started: before anyone can send a request
        channel.send(info)
        return EngineLoop(core, channel, clock=clock, heartbeat_s=config.heartbeat_s).run()
    except ChannelClosedError:
        return EXIT_OK


def _receive_config(channel: EngineChannel) -> EngineConfig:
    messages = channel.receive(timeout_s=None)
    if len(messages) != 1 or not isinstance(messages[0], Configure):
        raise ChannelError(f"the first message must be Configure alone, got {[type(m).__name__ for m in messages]}")
    return messages[0].config
