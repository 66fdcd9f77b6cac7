"""What all commands share: options from the table of options, help in sections, errors with the nearest name."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable
from typing import Any, TypeVar

import click

from elasticdl.jobs.options import LOCAL_STRATEGY, STRATEGY_NAMES, list_refusals, unknown_option_message
from elasticdl.spec import options
from elasticdl.spec.option import Option, OptionSyntax

FIRST_SECTION, LAST_SECTION = "Options to begin with", "Kubernetes"  # headings of the help

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def normalize_flag(token: str) -> str:
    """`--model_def` and `--model-def` are the same option."""
    return token.replace("_", "-")


def current_command_line() -> str:
    """The command that runs now, as the user would type it again."""
    return shlex.join(["elasticdl", *click.get_current_context().find_root().obj])


class JobOption(click.Option):
    """An option with a heading to stand under in the help.

    With `bare_value`, it may stand without a value: --flag means --flag=BARE_VALUE. Click's own `flag_value` would take
    a FILE that follows for the value; here only a word that can be one is: see `_can_be_value`.
    """

    def __init__(self, *declarations: Any, section: str = "", bare_value: str | None = None, **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.section = section
        self.bare_value = bare_value


class Command(click.Command):
    """A command whose help has sections and shows its examples as written."""

    def __init__(
        self, *arguments: Any, examples: str = "", first_options: tuple[str, ...] = (), **attributes: Any
    ) -> None:
        """`first_options` names the options that a beginner needs: they open the help, after the examples."""
        super().__init__(*arguments, **attributes)
        self.examples = examples
        self.first_options = first_options

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        filled = self._fill_bare_options(ctx, args)
        try:
            return super().parse_args(ctx, list(filled))
        except click.NoSuchOption as exc:
            raise click.UsageError(self._unknown_options_message(ctx, filled, exc.option_name), ctx) from exc

    def _fill_bare_options(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Gives options that stand without a value their `bare_value`."""
        options = {normalize_flag(flag): param for param in self.get_params(ctx) for flag in _long_flags(param)}
        filled, index = list(args), 0
        while index < len(filled):
            token = filled[index]
            # What follows a script is the script's.
            if token == "--" or not (token.startswith("-") or ctx.allow_interspersed_args):
                break
            option = options.get(normalize_flag(token))
            following = filled[index + 1] if index + 1 < len(filled) else "-"
            if isinstance(option, JobOption) and option.bare_value is not None and not _can_be_value(option, following):
                filled[index] = f"{token}={option.bare_value}"
                option = None
            has_value = isinstance(option, click.Option) and not option.is_flag
            index += 2 if has_value else 1
        return filled

    def _unknown_options_message(self, ctx: click.Context, args: list[str], first: str) -> str:
        """A line for each option that does not exist; `first` is the one that click came across."""
        flags = self._unknown_options(ctx, args) or [first]
        return list_refusals([self._unknown_option_message(ctx, flag) for flag in flags])

    def _unknown_options(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The options among `args` that this command does not have, each once."""
        options = {
            normalize_flag(flag): param
            for param in self.get_params(ctx)
            for flag in (*param.opts, *param.secondary_opts)
        }
        unknown: dict[str, None] = {}
        waits_for_value = False
        for token in args:
            if token == "--":
                break
            if not token.startswith("-") or token == "-":
                if not (waits_for_value or ctx.allow_interspersed_args):
                    break  # a script; what follows it is the script's
                waits_for_value = False
                continue
            flag, equals, _ = token.partition("=")
            # -fx is -f -x, or -f with the value x.
            option = options.get(normalize_flag(flag)) or (None if flag.startswith("--") else options.get(flag[:2]))
            if option is None:
                unknown[flag] = None
            is_switch = isinstance(option, click.Option) and option.is_flag
            waits_for_value = not equals and not is_switch
        return list(unknown)

    def _unknown_option_message(self, ctx: click.Context, flag: str) -> str:
        if not flag.startswith("--"):
            return f"no such option {flag}; see `{ctx.command_path} --help`"
        all_flags = [name for param in self.get_params(ctx) for name in _long_flags(param)]
        is_negation = normalize_flag(flag).startswith("--no-")
        names = [name.removeprefix("--") for name in all_flags if is_negation or not name.startswith("--no-")]
        return unknown_option_message(flag.lstrip("-"), names, str(self.name), f"see `{ctx.command_path} --help`")

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """With `first_options`: usage, one sentence, examples, the options to begin with; all else follows."""
        if not self.first_options:
            super().format_help(ctx, formatter)
            return
        opening, _, more = inspect.cleandoc(self.help or "").partition("\n\n")
        self.format_usage(ctx, formatter)
        _write_paragraphs(formatter, opening)
        self.format_epilog(ctx, formatter)
        self.format_options(ctx, formatter)
        _write_paragraphs(formatter, more)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {FIRST_SECTION: []}
        for param in sorted(self.get_params(ctx), key=self._help_order):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                section = param.section if isinstance(param, JobOption) else ""
                section = FIRST_SECTION if param.name in self.first_options else section or "Options"
                sections.setdefault(section, []).append(record)
        for section, records in sections.items():
            if records:
                with formatter.section(section):
                    formatter.write_dl(records, col_max=34)

    def _help_order(self, param: click.Parameter) -> tuple[int, int]:
        """Those to begin with in the order of `first_options`, then the others as declared, Kubernetes at the end."""
        if param.name in self.first_options:
            return 0, self.first_options.index(str(param.name))
        return (2 if getattr(param, "section", "") == LAST_SECTION else 1), 0

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.strip().splitlines():
                    formatter.write(f"{'':>{formatter.current_indent}}{line.strip()}\n")


def _write_paragraphs(formatter: click.HelpFormatter, text: str) -> None:
    if text:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text)


def _can_be_value(option: JobOption, word: str) -> bool:
    """Whether a word is a value of the option: one of its choices, or a name. A file or another option is not."""
    if isinstance(option.type, click.Choice):
        return word in option.type.choices
    return not word.startswith("-") and not set("./") & set(word)


def _long_flags(param: click.Parameter) -> list[str]:
    return [flag for flag in (*param.opts, *param.secondary_opts) if flag.startswith("--")]


def job_options(command: str) -> Callable[[Decorated], Decorated]:
    """Gives a command all options of the table that are for it. An option that is not given is None."""

    def decorate(function: Decorated) -> Decorated:
        for option in reversed(options.options_of(command)):
            function = _click_option(option)(function)
        return function

    return decorate


def _click_option(option: Option) -> Callable[[Decorated], Decorated]:
    common: dict[str, Any] = {"cls": JobOption, "section": option.section, "help": option.help, "default": None}
    if option.syntax is OptionSyntax.SWITCH:
        return click.option(f"{option.flag}/--no-{option.name}", option.name, **common)
    if option.syntax is OptionSyntax.OPTIONAL:
        common["bare_value"] = ""
    if option.path == "name":
        common["shell_complete"] = _complete_resumed_name
    flags = [option.flag, *([f"--{option.alias}"] if option.alias else [])]
    return click.option(
        *flags, option.name, multiple=option.syntax is OptionSyntax.MAPPING, metavar=option.metavar, type=str, **common
    )


def _complete_resumed_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of jobs for --resume; none for a new job."""
    from elasticdl.cli.arguments import complete_job_names

    return complete_job_names(ctx, param, incomplete) if ctx.params.get("resume") else []


def strategy_option(function: Decorated) -> Decorated:
    """Adds `--distribution_strategy`, an option of the original ElasticDL."""
    return click.option(
        "--distribution_strategy",
        cls=JobOption,
        section="Workers",
        metavar="NAME",
        help=f"{STRATEGY_NAMES[0]} (default), {STRATEGY_NAMES[1]}, or {LOCAL_STRATEGY}, which is one worker.",
    )(function)
