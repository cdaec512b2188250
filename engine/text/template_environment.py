"""TemplateEnvironment: Jinja2 as chat templates expect it, in a sandbox that also limits time, output and memory.

What templates expect is what transformers gives them: trimmed blocks, `raise_exception`, `strftime_now`, a `tojson`
that doesn't escape HTML, `break` and `continue`, the `generation` tag. Beside the immutable sandbox, each parsed
template is rewritten:

    for, macro, call blocks    count turns of the TemplateBudget on every entry
    a ~ b                      joins within the budget, like + and * do
    a == b, a in b, ...        compare with stand-ins on both sides (ControlGuard), so a template that looks for
                               `</think>` in a message still finds it
"""

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

from jinja2 import nodes, pass_context, pass_eval_context
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.tests import TESTS
from jinja2.visitor import NodeTransformer

from engine.clock import Clock
from engine.text.control_guard import ControlGuard
from engine.text.template_budget import CURRENT_BUDGET, TemplateBudgetExceededError
from engine.text.template_costs import check_operation, check_string_method, num_nodes
from engine.text.template_messages import ToolArguments

# Filter names that no template can spell.
_TICK, _COMPARABLE, _CONCAT = "!tick", "!comparable", "!concat"
_STRING_FILTERS = ("center", "indent", "format", "wordwrap", "replace", "trim")
_MAX_JSON_INDENT = 64
# A macro call takes about as long as this many turns of an empty loop.
_TURNS_PER_CALL = 16


class TemplateRaisedError(TemplateError):
    """The template called raise_exception: it refuses the conversation."""


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Compile chat templates; see the module's text.

    Args:
        guard: its stand-ins may occur in what the templates are given.
        clock: what `strftime_now` reads.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, guard: ControlGuard, clock: Clock) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, loopcontrols],
            finalize=self._printable,
        )
        self._guard = guard
        self._clock = clock
        del self.globals["lipsum"]
        self.globals.update(raise_exception=_raise_exception, strftime_now=self._strftime_now, range=_range)
        self.filters.update({name: self._string_filter(name, FILTERS[name]) for name in _STRING_FILTERS})
        self.filters.update(join=_join, list=_list, tojson=self._tojson, string=self._as_text)
        self.filters.update({_TICK: _tick, _COMPARABLE: self._comparable, _CONCAT: self._concat})
        for name in ("eq", "==", "equalto", "ne", "!=", "in"):
            self.tests[name] = self._comparing(TESTS[name])

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = Parser(self, source, name, filename).parse()
        _Rewriter().visit(tree)
        tree.set_environment(self)
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute + * ** % unless the result would be too large."""
        check_operation(operator, left, right)
        return super().call_binop(context, operator, left, right)

    # Named by position like the parent's, so that a template may pass any keyword.
    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call a method or function; a string's methods get arguments that match its stand-ins, and no huge widths."""
        owner = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)
        if isinstance(owner, str):
            if __self._guard.is_protected(owner):
                args = tuple(__self._comparable(argument) for argument in args)
            check_string_method(__obj.__name__, owner, (*args, *kwargs.values()))
        return super().call(__context, __obj, *args, **kwargs)

    def _comparable(self, value: Any) -> Any:
        """Return `value` with stand-ins in it, or in its items if it is a list: two of these compare as they should."""
        if isinstance(value, str):
            return self._guard.stand_in(value)
        if isinstance(value, list | tuple):
            num_nodes(value)
            return [self._guard.stand_in(item) if isinstance(item, str) else item for item in value]
        return value

    def _printable(self, value: Any) -> Any:
        """Return `value`, a list or object as its text: Python's own would spell the stand-ins as escapes."""
        if isinstance(value, ToolArguments):
            return value.text
        if isinstance(value, dict | list | tuple):
            num_nodes(value)
            return self._guard.stand_in(str(self._restored(value)))
        return value

    def _restored(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._guard.restore(value)
        if isinstance(value, dict):
            return {self._restored(name): self._restored(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._restored(item) for item in value]
        return value

    def _as_text(self, value: Any) -> str:
        return str(self._printable(value))

    @pass_context
    def _concat(self, context: Context, parts: list[object]) -> str:
        texts = [self._as_text(part) for part in parts]
        CURRENT_BUDGET.get().value(sum(map(len, texts)))
        return "".join(texts)

    def _comparing(self, test: Any) -> Callable[..., Any]:
        def compare(left: Any, right: Any) -> Any:
            return test(self._comparable(left), self._comparable(right))

        return compare

    def _string_filter(self, name: str, function: Any) -> Callable[..., Any]:
        """Do for a filter what `call` does for a string's method."""
        pass_argument = getattr(function, "jinja_pass_arg", None)
        num_passed = 0 if pass_argument is None else 1

        def call(*args: Any, **kwargs: Any) -> Any:
            subject, given = args[num_passed], args[num_passed + 1 :]
            if isinstance(subject, str):
                if self._guard.is_protected(subject):
                    given = tuple(map(self._comparable, given))
                check_string_method(name, subject, (*given, *kwargs.values()))
            return function(*args[:num_passed], subject, *given, **kwargs)

        if pass_argument is not None:
            call.jinja_pass_arg = pass_argument  # type: ignore[attr-defined]
        return call

    def _tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        num_nodes(value)
        if indent is not None and not 0 <= indent <= _MAX_JSON_INDENT:
            raise TemplateBudgetExceededError(f"it indents JSON by {indent}")
        text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        CURRENT_BUDGET.get().value(len(text))
        return self._guard.restore_escapes(text) if ensure_ascii else text

    def _strftime_now(self, form: str) -> str:
        if len(form) > 256:
            raise TemplateBudgetExceededError("it formats the time with more than 256 characters")
        return dt.datetime.fromtimestamp(self._clock.wall()).astimezone().strftime(form)


def _raise_exception(message: str) -> None:
    raise TemplateRaisedError(str(message))


@pass_context  # so that the compiler doesn't fold it away as a constant
def _tick(context: Context, num_turns: int) -> None:
    CURRENT_BUDGET.get().tick(num_turns)


@pass_eval_context
def _join(eval_ctx: EvalContext, value: Any, d: str = "", attribute: str | int | None = None) -> Any:
    parts = list(value)
    if attribute is None:
        check_string_method("join", d, [parts])
    return FILTERS["join"](eval_ctx, parts, d, attribute)


def _list(value: Any) -> list[Any]:
    items = list(value)
    CURRENT_BUDGET.get().value(8 * len(items))
    return items


def _range(*args: int) -> range:
    numbers = safe_range(*args)
    CURRENT_BUDGET.get().value(8 * len(numbers))
    return numbers


class _GenerationTag(Extension):
    """`{% generation %}` marks assistant text for training; here it means its body."""

    tags = {"generation"}  # noqa: RUF012 - the parent declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Rewriter(NodeTransformer):
    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - Jinja's name
        return self._counted(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802 - Jinja's name
        return self._counted(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802 - Jinja's name
        return self._counted(node)

    def _counted(self, node: nodes.For | nodes.Macro | nodes.CallBlock) -> nodes.Node:
        self.generic_visit(node)
        num_turns = 1 if isinstance(node, nodes.For) else _TURNS_PER_CALL
        tick = nodes.ExprStmt(_filtered(nodes.Const(num_turns, lineno=node.lineno), _TICK), lineno=node.lineno)
        node.body.insert(0, tick)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - Jinja's name
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), _CONCAT)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802 - Jinja's name
        self.generic_visit(node)
        node.expr = _filtered(node.expr, _COMPARABLE)
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, _COMPARABLE)
        return node


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
