"""ChatTemplate: what a conversation becomes, and that it does so as transformers does it."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from engine.clock import ManualClock
from engine.errors import InvalidRequestError, ModelLoadError
from engine.model.tokenizer_source import ByteTokenizerSource, GgufTokenizerSource
from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer, build_tokenizer
from tests.support.text_sources import BOS, byte_level_source, sentencepiece_source

PROMPTS = json.loads((Path(__file__).parents[2] / "data" / "smollm2_prompts.json").read_text(encoding="utf-8"))

SIMPLE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TRIMMING = SIMPLE.replace("message['content']", "message['content'] | trim")
# What templates of reasoning and tool-calling models do with contents: look for marks, split, strip, print JSON.
INSPECTING = """
{%- if tools %}{{- '<|im_start|>system\n# Tools' }}{% for tool in tools %}{{- '\n' ~ (tool | tojson) }}{% endfor %}
{{- '<|im_end|>\n' }}{% endif %}
{%- set ns = namespace(last=-1) %}
{%- for message in messages[::-1] %}
  {%- set index = (messages | length - 1) - loop.index0 %}
  {%- if ns.last < 0 and message.role == 'user' %}{% set ns.last = index %}{% endif %}
{%- endfor %}
{%- for message in messages %}
  {%- set content = message.content if message.content is string else '' %}
  {%- if message.role == 'user' and not (content.startswith('<tool>') and content.endswith('</tool>')) %}
    {{- '<|im_start|>user\n' + content + '<|im_end|>\n' }}
  {%- elif message.role == 'assistant' %}
    {%- set reasoning = '' %}
    {%- if '</think>' in content %}
      {%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
      {%- set content = content.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
    {{- '<|im_start|>assistant\n' }}
    {%- if loop.index0 > ns.last %}{{- '<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' }}{% endif %}
    {{- content }}
    {%- for call in message.tool_calls or [] %}
      {{- '\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
  {%- else %}{{- '[' ~ message.role ~ '] ' ~ content ~ '\n' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}
"""
USER = [{"role": "user", "content": "hello"}]
TALK = [
    {"role": "system", "content": "Be < brief >."},
    {"role": "user", "content": "  1 < 2 and <b>bold</b>?  "},
    {"role": "assistant", "content": "<think>\nlet me see\n</think>\n\nyes", "tool_calls": []},
    {"role": "user", "content": "<tool>42</tool>"},
    {"role": "assistant", "content": "<think>hm</think>so"},
    {"role": "tool", "content": "{'a': \"<x>\"}"},
    {"role": "user", "content": "and\nthen?"},
    {"role": "assistant", "content": "<think>well</think>\ndone"},
]
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": "<é>"}'}}
TOOLS = [
    {"type": "function", "function": {"name": "add", "description": "a < b & c", "parameters": {"type": "object"}}}
]


def template(text: str | None, **source: Any) -> ChatTemplate:
    made = byte_level_source(chat_template=text, **source)
    return ChatTemplate(made, build_tokenizer(made))


@pytest.mark.model
@pytest.mark.parametrize("case", PROMPTS["chats"], ids=["default system", "four turns"])
def test_render_ids_default_model_gives_the_reference_ids(
    case: dict[str, Any], smollm2_source: GgufTokenizerSource, smollm2: Tokenizer
) -> None:
    assert ChatTemplate(smollm2_source, smollm2).render_ids(case["messages"]) == case["ids"]


@pytest.mark.parametrize("text", [SIMPLE, TRIMMING, INSPECTING], ids=["simple", "trimming", "inspecting"])
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("end", range(1, len(TALK) + 1))
def test_render_text_equals_transformers(text: str, tools: list[dict[str, Any]] | None, end: int) -> None:
    messages = TALK[:end]
    [expected], _ = render_jinja_template([messages], tools=tools, chat_template=text, add_generation_prompt=True)
    assert template(text).render_text(messages, tools=tools) == expected


@pytest.mark.parametrize("text", [SIMPLE, TRIMMING], ids=["simple", "trimming"])
@pytest.mark.parametrize("content", ["The answer is", "The answer is ", "  so\n"])
def test_render_text_continued_message_equals_transformers(text: str, content: str) -> None:
    messages = [*USER, {"role": "assistant", "content": content}]
    [expected], _ = render_jinja_template([messages], chat_template=text, continue_final_message=True)
    made = template(text).render_text(messages, add_generation_prompt=False, continue_final_message=True)
    assert made == expected


def test_render_ids_control_ids_come_from_the_template() -> None:
    ids = template(SIMPLE).render_ids(USER)
    tokenizer = build_tokenizer(byte_level_source())
    assert tokenizer.decode(ids, skip_special_tokens=False) == template(SIMPLE).render_text(USER)
    assert [tokenizer.token_text(i) for i in ids if tokenizer.is_special(i)] == [
        *("<|im_start|>", "<|im_end|>", "<|im_start|>")
    ]


@pytest.mark.parametrize("begin", ["{{ bos_token }}", "<s>", ""])
def test_render_ids_model_with_bos_has_exactly_one(begin: str) -> None:
    assert template(begin + SIMPLE, add_bos=True).render_ids(USER).count(BOS) == 1


@pytest.mark.parametrize(("begin", "count"), [("{{ bos_token }}", 1), ("", 0)])
def test_render_ids_model_without_bos_has_what_the_template_writes(begin: str, count: int) -> None:
    assert template(begin + SIMPLE, add_bos=False).render_ids(USER).count(BOS) == count


def test_render_ids_sentencepiece_has_exactly_one_bos() -> None:
    source = sentencepiece_source(chat_template="{{ bos_token }}{{ messages[0].content }}{{ eos_token }}")
    ids = ChatTemplate(source, build_tokenizer(source)).render_ids(USER)
    assert ids[0] == 1
    assert ids.count(1) == 1
    assert ids[-1] == 2


def test_render_ids_byte_model_has_a_template_of_its_own() -> None:
    source = ByteTokenizerSource(vocab_size=260)
    ids = ChatTemplate(source, build_tokenizer(source)).render_ids(USER)
    assert ids == [256, 258, *b"user\nhello", 259, *b"\n", 258, *b"assistant\n"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": "A"}, {"type": "text", "text": "B"}], "A\nB"),
        ([{"type": "text", "text": "A"}], "A"),
        ([], ""),
        ("", ""),
        (None, ""),
    ],
)
def test_render_text_content_forms_become_text(content: object, text: str) -> None:
    made = template("[{{ messages[0].content }}]").render_text([{"role": "user", "content": content}])
    assert made == f"[{text}]"


def test_render_text_content_absent_beside_tool_calls_is_empty_text() -> None:
    messages = [*USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "content": "3"}]
    without = [*USER, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "content": "3"}]
    made = template(INSPECTING).render_text(messages)
    assert made == template(INSPECTING).render_text(without)
    assert '{"name": "add", "arguments": {"a": 1, "b": "<é>"}}' in made
    assert "[tool] 3" in made


@pytest.mark.parametrize("arguments", ["not json", "[1]", '"text"'])
def test_render_text_tool_arguments_that_are_no_object_stay_text(arguments: str) -> None:
    call = {"function": {"name": "add", "arguments": arguments}}
    made = template("{{ messages[0].tool_calls[0].function.arguments }}").render_text(
        [{"role": "assistant", "tool_calls": [call]}]
    )
    assert made == arguments


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ ARGUMENTS }}", '{"a": 1, "b": "<é>"}'),
        ("{{ '[' + ARGUMENTS + ']' }}", '[{"a": 1, "b": "<é>"}]'),
        ("{{ '[' ~ ARGUMENTS ~ ']' }}", '[{"a": 1, "b": "<é>"}]'),
        ("{{ ARGUMENTS | string }}", '{"a": 1, "b": "<é>"}'),
        ("{{ ARGUMENTS | tojson }}", '{"a": 1, "b": "<é>"}'),
        ("{{ ARGUMENTS | tojson(indent=1) }}", '{\n "a": 1,\n "b": "<é>"\n}'),
        ("{{ ARGUMENTS.b }}", "<é>"),
        ("{% for k, v in ARGUMENTS.items() %}{{ k }}={{ v }};{% endfor %}", "a=1;b=<é>;"),
        ("{% for k, v in ARGUMENTS | items %}{{ k }}={{ v }};{% endfor %}", "a=1;b=<é>;"),
        ("{{ ARGUMENTS is mapping }}", "True"),
    ],
)
def test_render_text_tool_arguments_serve_templates_that_want_an_object_or_text(text: str, expected: str) -> None:
    made = template(text.replace("ARGUMENTS", "messages[0].tool_calls[0].function.arguments"))
    assert made.render_text([{"role": "assistant", "tool_calls": [CALL]}]) == expected


def test_render_text_object_printed_by_a_template_reads_like_python() -> None:
    assert template("{{ tools[0].function }}").render_text(USER, tools=TOOLS) == str(TOOLS[0]["function"])


@pytest.mark.parametrize(
    "content",
    [5, True, {"type": "text", "text": "A"}, [{"type": "image_url", "image_url": {}}], ["A"], [{"type": "text"}]],
)
def test_render_content_of_another_kind_is_refused(content: object) -> None:
    with pytest.raises(InvalidRequestError, match=r"messages\[0\]\.content"):
        template(SIMPLE).render_ids([{"role": "user", "content": content}])


@pytest.mark.parametrize("messages", [[], [{"content": "no role"}], ["text"], [{"role": 5}]])
def test_render_malformed_messages_are_refused(messages: list[Any]) -> None:
    with pytest.raises(InvalidRequestError, match="messages"):
        template(SIMPLE).render_ids(messages)


def test_render_deep_data_is_refused() -> None:
    deep: Any = {}
    for _ in range(500):
        deep = {"x": deep}
    with pytest.raises(InvalidRequestError, match="`tools` must not be nested"):
        template(SIMPLE).render_ids(USER, tools=[deep])


def test_render_without_a_template_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no chat template"):
        template(None).render_ids(USER)


def test_render_template_that_refuses_passes_its_words_on() -> None:
    with pytest.raises(InvalidRequestError, match="roles must alternate"):
        template("{{ raise_exception('roles must alternate') }}").render_ids(USER)


@pytest.mark.parametrize(
    "text", ["{{ messages[0].nothing.at.all }}", "{{ 'a' + 1 }}", "{{ 1 / 0 }}", "{{ [][3] + 'a' }}"]
)
def test_render_template_fault_names_the_template(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="chat template"):
        template(text).render_ids(USER)


def test_construction_of_invalid_jinja_is_refused_with_the_line() -> None:
    with pytest.raises(ModelLoadError, match="line 2"):
        template("a\n{% for %}")


def test_construction_with_an_operators_template_replaces_the_models() -> None:
    source = byte_level_source(chat_template=SIMPLE)
    made = ChatTemplate(source, build_tokenizer(source), template="mine")
    assert made.render_text(USER) == "mine"


@pytest.mark.parametrize(
    "name", ["chat_template", "messages", "tools", "add_generation_prompt", "bos_token", "raise_exception", "_x"]
)
def test_kwargs_must_not_replace_what_the_template_stands_on(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"`{name}`"):
        template(SIMPLE).render_ids(USER, kwargs={name: "x"})


def test_kwargs_reach_the_template() -> None:
    made = template("{% if enable_thinking is false %}off{% endif %}")
    assert made.render_text(USER, kwargs={"enable_thinking": False}) == "off"


def test_continue_final_message_excludes_a_generation_prompt() -> None:
    with pytest.raises(InvalidRequestError, match="excludes"):
        template(SIMPLE).render_ids(USER, continue_final_message=True)


def test_continue_final_message_that_the_template_hides_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="`continue_final_message`"):
        template("x").render_ids(USER, add_generation_prompt=False, continue_final_message=True)


def test_messages_of_the_caller_stay_as_they_are() -> None:
    messages = [{"role": "user", "content": "<s>"}]
    template(SIMPLE).render_ids(messages, add_generation_prompt=False, continue_final_message=True)
    assert messages == [{"role": "user", "content": "<s>"}]


def test_strftime_now_reads_the_given_clock() -> None:
    source = byte_level_source(chat_template="{{ strftime_now('%Y') }}")
    made = ChatTemplate(source, build_tokenizer(source), clock=ManualClock(now=86_400.0 * 365 * 3))
    assert made.render_text(USER) == "1972"


def test_generation_tag_and_loop_controls_are_understood() -> None:
    text = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}"
    assert template(text).render_text([*USER, *USER]) == "hello"


def test_render_ids_from_many_threads_at_once_do_not_mix() -> None:
    made = template(SIMPLE + "{% for i in range(2000) %}{% endfor %}")
    conversations = [[{"role": "user", "content": f"<s>{i}" * 50}] for i in range(32)]
    expected = [made.render_ids(messages) for messages in conversations]
    with ThreadPoolExecutor(max_workers=8) as pool:
        assert list(pool.map(made.render_ids, conversations)) == expected


@pytest.mark.parametrize(
    ("text", "role"),
    [("{{ messages[0].role }}", "system"), ("{# developer #}{{ messages[0].role }}", "developer")],
)
def test_render_text_developer_is_the_system_where_the_template_does_not_know_it(text: str, role: str) -> None:
    assert template(text).render_text([{"role": "developer", "content": "x"}]) == role
