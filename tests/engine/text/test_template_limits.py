"""The sandbox: no template reaches into Python, holds a thread, or fills the memory."""

import time

import pytest

from engine.clock import Clock, ManualClock
from engine.errors import InvalidRequestError
from engine.text.chat_template import ChatTemplate
from engine.text.template_budget import TemplateLimits
from engine.text.tokenizer import build_tokenizer
from tests.support.text_sources import byte_level_source

USER = [{"role": "user", "content": "hello\tyou"}]
DOUBLE = "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = EXPRESSION %}{% endfor %}{{ ns.x }}"


def render(text: str, *, limits: TemplateLimits | None = None, clock: Clock | None = None) -> str:
    source = byte_level_source(chat_template=text)
    return ChatTemplate(source, build_tokenizer(source), limits=limits, clock=clock).render_text(USER)


@pytest.mark.alone
@pytest.mark.parametrize(
    "text",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}.{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% set c = a %}{% endfor %}{% endfor %}",
        "{% macro m() %}{% for b in range(99999) %}.{% endfor %}{% endmacro %}" + "{{ m() }}" * 9,
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{% for a in [1] recursive %}{{ loop([1]) }}{{ loop([1]) }}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 'x' * 999999999999 }}",
        "{{ ['x'] * 999999999999 }}",
        "{{ 999999999999 * 'x' }}",
        "{{ 10 ** 9999999 }}",
        "{{ 9 ** (9 ** 9) }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ '{:{}}'.format(1, 999999999) }}",
        "{{ '%999999999d' | format(1) }}",
        "{{ 'a'.center(999999999) }}",
        "{{ 'a' | center(999999999) }}",
        "{{ 'a' | indent(999999999, true) }}",
        "{{ 'a'.ljust(width=999999999) }}",
        "{{ range(99999) | join('x' * 100000) }}",
        "{{ ('x' * 100000).join(range(99999) | map('string') | list) }}",
        "{{ ('a' * 1000000).replace('a', 'b' * 1000) }}",
        "{{ ('a' * 1000000) | replace('a', 'b' * 1000) }}",
        "{{ ('\t' * 1000000).expandtabs(1000) }}",
        "{{ [1] | tojson(indent=999999999) }}",
        DOUBLE.replace("EXPRESSION", "ns.x + ns.x"),
        DOUBLE.replace("EXPRESSION", "ns.x ~ ns.x"),
        DOUBLE.replace("EXPRESSION", "[ns.x, ns.x]"),
        DOUBLE.replace("EXPRESSION", "[ns.x, ns.x]").replace("{{ ns.x }}", "{{ ns.x | tojson }}"),
        DOUBLE.replace("EXPRESSION", "[ns.x, ns.x]").replace("{{ ns.x }}", "{{ '%s' % [ns.x] }}"),
        DOUBLE.replace("EXPRESSION", "'{0}{0}'.format(ns.x)"),
        DOUBLE.replace("EXPRESSION", "ns.x * 2"),
        DOUBLE.replace("EXPRESSION", "ns.x + [ns.x] * 2").replace("x='ab'", "x=[1]"),
    ],
)
def test_render_costly_template_ends_with_an_error_in_time(text: str) -> None:
    start = time.process_time()
    with pytest.raises(InvalidRequestError, match="chat template"):
        render(text)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ ''['__class__'].mro() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{{ raise_exception.__globals__.items() }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{{ (messages | attr('__class__')).mro() }}",
        "{{ strftime_now.__self__.filters }}",
        "{{ self.__init__.__globals__ }}",
        "{{ lipsum(9999) }}",
    ],
)
def test_render_template_that_reaches_into_python_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="chat template"):
        render(text)


def test_render_output_above_the_limit_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="more than 10 characters"):
        render("{% for i in range(11) %}.{% endfor %}", limits=TemplateLimits(max_output_chars=10))


def test_render_loop_turns_above_the_limit_are_refused() -> None:
    limits = TemplateLimits(max_iterations=10)
    assert render("{% for i in range(10) %}.{% endfor %}", limits=limits) == "." * 10
    with pytest.raises(InvalidRequestError, match="more than 10 loop turns"):
        render("{% for i in range(11) %}.{% endfor %}", limits=limits)


def test_render_beyond_the_time_limit_is_refused() -> None:
    class SlowClock(ManualClock):
        def now(self) -> float:
            self.advance(1.0)
            return super().now()

    with pytest.raises(InvalidRequestError, match=r"longer than 3\.0 s"):
        render("{% for i in range(9999) %}.{% endfor %}", limits=TemplateLimits(max_time_s=3.0), clock=SlowClock())


def test_render_budget_is_per_rendering() -> None:
    source = byte_level_source(chat_template="{% for i in range(10) %}.{% endfor %}")
    template = ChatTemplate(source, build_tokenizer(source), limits=TemplateLimits(max_iterations=10))
    assert [template.render_text(USER) for _ in range(3)] == ["." * 10] * 3


def test_render_long_conversation_stays_within_the_default_limits() -> None:
    text = "{% for m in messages %}<|im_start|>{{ m.role + '\n' ~ m.content | trim }}<|im_end|>{% endfor %}"
    source = byte_level_source(chat_template=text)
    messages = [{"role": "user", "content": "word " * 100}] * 4000
    assert len(ChatTemplate(source, build_tokenizer(source)).render_text(messages)) > 2_000_000
