"""The path of a generating request: parse, admit, encode, generate, send. Both routes are this, with another API.

refused before it was opened   the recorder counts the type of the refusal
opened                         exactly one end: refused or abandoned here, or a terminal event of the engine
always                         permit, engine requests and stream are released before the call returns
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.errors import InvalidRequestError, PellucidError
from engine.messages import EngineInfo
from observability.span_facts import Answered, GenerationFacts
from service.delivery import Delivery
from service.disconnect import unless_disconnected
from service.generation import Generation, Prompt
from service.generation_facts import Message, Transcript, encode_messages, request_attributes
from service.json_body import read_json_object
from service.middleware.request_context import RequestContext, context_of
from service.protocol.answer import Answer
from service.protocol.fields import GenerationFields
from service.protocol.parameters import ignored_header
from service.protocol.parse import Parsed
from service.routes.answer_frames import AnswerFrames
from service.services import Services
from service.sse import Silence
from service.timings import timing_extras
from service.token_stream import TokenStream

R = TypeVar("R", bound=GenerationFields)


@dataclass(frozen=True)
class Opening:
    """What an API needs to know besides the body.

    Attributes:
        request_ids: of the engine requests, one per prompt.
        model: the name to answer with.
        arrival: monotonic seconds when the body was parsed.
        info: what is loaded.
    """

    request_ids: Sequence[str]
    model: str
    arrival: float
    info: EngineInfo


@dataclass(frozen=True)
class Call:
    """A request ready to run: one engine request per prompt, and how to render what comes back, under which id."""

    prompts: Sequence[Prompt]
    answer: Answer
    answer_id: str


class GeneratingApi(Protocol[R]):
    """What differs between the generating routes."""

    def parse(self, body: Mapping[str, Any]) -> Parsed[R]:
        """Check the shape of a body. Raises InvalidRequestError."""
        ...

    def num_prompts(self, request: R) -> int: ...

    def input_messages(self, request: R, prompt: int) -> Sequence[Message]:
        """Return one prompt as the GenAI conventions write it, for spans of servers that may log content."""
        ...

    async def prepare(self, request: R, opening: Opening) -> Call:
        """Encode the prompts and build the engine's requests. Raises InvalidRequestError."""
        ...


class GeneratingRoute(Generic[R]):
    """An ASGI endpoint.

    Args:
        services: what it works with.
        api: which of the APIs it speaks.
    """

    def __init__(self, services: Services, api: GeneratingApi[R]) -> None:
        self._services = services
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        services, context = self._services, context_of(scope)
        with ExitStack() as stack:
            try:
                info = services.ready_info()
                parsed = await self._parse(scope, receive)
                arrival = services.clock.now()
                request = parsed.request
                model = services.models.resolve(request.model)
                num_prompts = self._api.num_prompts(request)
                _check_n(request.n, info)
                stack.enter_context(services.admission.permit(request.n * num_prompts))
            except PellucidError as error:
                services.recorder.rejected(error.error_type)
                raise
            opening = Opening(_request_ids(context, num_prompts), model, arrival, info)
            for index, request_id in enumerate(opening.request_ids):
                services.tracing.generation_opened(request_id, self._facts(request, index, opening, context))
                services.recorder.request_opened(
                    request_id,
                    trace_id=context.trace.trace_id if context.trace.is_sampled else "",
                    route=context.route,
                    model=model,
                    stream=request.stream,
                    arrival=arrival,
                )
            stack.callback(self._give_up, opening.request_ids)
            exchange = _Exchange(scope, receive, send, context, parsed.ignored)
            await self._serve(request, opening, exchange)

    async def _parse(self, scope: Scope, receive: Receive) -> Parsed[R]:
        limits = self._services.settings.limits
        body = await read_json_object(scope, receive, max_bytes=limits.body_bytes, max_depth=limits.json_depth)
        parsed = self._api.parse(body)
        limits.check(parsed.request)
        return parsed

    def _facts(self, request: R, prompt: int, opening: Opening, context: RequestContext) -> GenerationFacts:
        keeps_content = self._services.settings.log_content
        return GenerationFacts(
            context.trace,
            opening.arrival,
            request.model or opening.model,
            request_attributes(request),
            encode_messages(self._api.input_messages(request, prompt)) if keeps_content else "",
        )

    async def _serve(self, request: R, opening: Opening, exchange: "_Exchange") -> None:
        """Run an opened request; until the engine has it, every end of it is told to the recorder here."""
        with self._ends_told(opening.request_ids):
            call = await unless_disconnected(self._api.prepare(request, opening), exchange.receive)
            services = self._services
            encoded = services.clock.now()
            for prompt in call.prompts:
                services.recorder.request_encoded(prompt.request.request_id, encoded)
                services.prompt_log.keep(prompt.request.request_id, prompt.request.prompt_token_ids)
            transcript = Transcript()
            generation = Generation(
                services.engine,
                call.prompts,
                clock=services.clock,
                on_taken=services.recorder.answer_taken,
                on_deltas=transcript.add if services.settings.log_content else None,
            )
            self._tell_tracing(opening.request_ids, call.answer_id, transcript)
            await generation.start()
        async with generation:
            wants_timings = services.settings.timings if request.timings is None else request.timings
            delivery = Delivery(services.recorder, opening.request_ids)
            try:
                if request.stream:
                    await self._stream(call, generation, exchange, delivery, wants_timings=wants_timings)
                else:
                    await self._send_whole(call, generation, exchange, delivery, wants_timings=wants_timings)
            finally:
                self._tell_tracing(opening.request_ids, call.answer_id, transcript)
                if delivery.completed is not None:
                    self._sent_last(opening.request_ids, delivery.completed)

    def _tell_tracing(self, request_ids: Sequence[str], answer_id: str, transcript: Transcript) -> None:
        """Say what the answer is called and what is in it so far: an abort closes the request at any moment."""
        for request_id in request_ids:
            answered = Answered(answer_id, transcript.output_messages(request_id))
            self._services.tracing.generation_answered(request_id, answered)

    @contextmanager
    def _ends_told(self, request_ids: Sequence[str]) -> Iterator[None]:
        recorder = self._services.recorder
        try:
            yield
        except PellucidError as error:
            for request_id in request_ids:
                recorder.request_refused(request_id, error.error_type, error.message)
            raise
        except BaseException:  # the client left, or the server is being torn down
            for request_id in request_ids:
                recorder.request_abandoned(request_id, "client_gone")
            raise

    async def _stream(
        self, call: Call, generation: Generation, exchange: "_Exchange", delivery: Delivery, *, wants_timings: bool
    ) -> None:
        settings, recorder = self._services.settings, self._services.recorder
        frames = AnswerFrames(
            call.answer,
            generation,
            [prompt.request.request_id for prompt in call.prompts],
            error_id=exchange.context.request_id,
            extras=partial(self._extras, call, generation) if wants_timings else None,
            on_first_sent=recorder.sent_first,
        )
        stream = TokenStream(
            frames,
            silence=Silence(settings.keep_alive_s, settings.filler_s, call.answer.filler),
            clock=self._services.clock,
            headers=exchange.headers,
            transfer=delivery,
        )
        await stream(exchange.scope, exchange.receive, exchange.send)

    async def _send_whole(
        self, call: Call, generation: Generation, exchange: "_Exchange", delivery: Delivery, *, wants_timings: bool
    ) -> None:
        await unless_disconnected(_gather(call.answer, generation), exchange.receive)
        body = call.answer.body(generation.usage, self._extras(call, generation) if wants_timings else {})
        response = Response(body, media_type="application/json")
        response.raw_headers.extend(exchange.headers)
        begun = self._services.clock.now()
        await response(exchange.scope, exchange.receive, exchange.send)
        delivery.wrote(begun, self._services.clock.now(), is_last=True)

    def _extras(self, call: Call, generation: Generation) -> dict[str, Any]:
        return timing_extras(self._services.recorder.request(call.prompts[0].request.request_id), generation.usage)

    def _sent_last(self, request_ids: Sequence[str], t: float) -> None:
        for request_id in request_ids:
            self._services.recorder.sent_last(request_id, t)

    def _give_up(self, request_ids: Sequence[str]) -> None:
        """Whatever has not been sent by now never will be."""
        self._sent_last(request_ids, self._services.clock.now())


@dataclass(frozen=True)
class _Exchange:
    """The HTTP side of one call."""

    scope: Scope
    receive: Receive
    send: Send
    context: RequestContext
    ignored: Sequence[str]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"x-ignored-params", ignored_header(self.ignored).encode())] if self.ignored else []


async def _gather(answer: Answer, generation: Generation) -> None:
    async for deltas in generation.deltas():
        for delta in deltas:
            answer.gather(delta)


def _check_n(n: int, info: EngineInfo) -> None:
    """Raise InvalidRequestError if a prompt's choices, which run side by side, are more than can run at all."""
    if n > info.max_num_seqs:
        raise InvalidRequestError(
            f"`n` must be at most {info.max_num_seqs}, the choices that can run at once here, got {n}", param="n"
        )


def _request_ids(context: RequestContext, num_prompts: int) -> list[str]:
    if num_prompts == 1:
        return [context.request_id]
    return [f"{context.request_id}-{index}" for index in range(num_prompts)]
