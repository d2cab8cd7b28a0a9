"""The ``dptext`` command; ``jobs/*.py`` are the same commands for spark-submit."""

from __future__ import annotations

import errno
import inspect
import logging
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
from pydantic.fields import FieldInfo

from dptext_spark import interrupts
from dptext_spark.arguments import ON_COMMAND_LINE
from dptext_spark.bars import drop_unwritten, stage, tell
from dptext_spark.errors import (
    ConfigError,
    DptextError,
    JobError,
    leaves,
    not_utf8,
    number,
    printable,
    range_of,
)
from dptext_spark.options import COMMANDS, Options, several
from dptext_spark.parsing import toml_table
from dptext_spark.version import __version__

REQUIRED: Final = "Required"
_UNWRITABLE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
_SETTINGS: Final = {"max_content_width": 110, "help_option_names": ["-h", "--help"]}
_UNDER_SPARK_SUBMIT: Final = "PYSPARK_GATEWAY_PORT" in os.environ
_APART: Final = "\n" if _UNDER_SPARK_SUBMIT else ""  # from Spark's lines
_KINDS: Final = {float: "NUMBER", int: "INTEGER", Path: "PATH", str: "TEXT"}

_COLUMN: Final = 32  # of the help, for an option and its values
_HYPHEN: Final = "\u2011"  # one at which no line is broken

# What click's context has of a run: what an interrupted one leaves; that its help has all options.
_UNFINISHED: Final = "dptext.unfinished"
HELP_ALL: Final = "dptext.help-all"


def parameter(name: str, field: FieldInfo, *, positional: bool) -> click.Parameter:
    """Build the parameter of a field."""
    values = values_of(field)
    if positional:
        metavar = None
        if field.is_required():
            metavar = name.upper()
        return click.Argument([name], required=False, metavar=metavar, type=_click_type(field))
    if field.annotation is bool:
        return click.Option([f"--{name}"], is_flag=True, default=None, help=help_of(field))
    listed = "|".join(values)
    choice = f"[{listed}]"
    if listed.isupper():
        metavar = listed
    elif len(f"--{name} {choice}") <= _COLUMN:
        metavar = choice
    else:  # the description has the values
        metavar = "NAME"
    return click.Option(
        [f"--{name}"],
        type=_click_type(field),
        multiple=several(field),
        metavar=metavar,
        help=help_of(field),
    )


def _click_type(field: FieldInfo) -> Any:
    """Return what click makes of an option's text."""
    if "PATH" in values_of(field):
        return click.Path()
    if is_number(field):
        return number
    return str


def help_of(field: FieldInfo) -> str:
    """Return what an option means, its default, and the numbers that it takes."""
    parts = [str(field.description)]
    default = field.default
    has_default = not field.is_required() and default not in (None, (), "")
    if has_default and field.annotation is not bool:
        if not isinstance(default, tuple):
            default = (default,)
        parts.append(f"; default: {' '.join(map(str, default))}")
    if is_number(field):
        bounds = range_of(field)
        if bounds and "e-" not in bounds:
            parts.append(f" [{bounds}]")
    return "".join(parts)


def values_of(field: FieldInfo) -> list[str]:
    """Return what an option takes: what users write in capitals, and values as they are."""
    names: list[str] = []
    kinds: list[str] = []
    for leaf in [*leaves(field.annotation), *field.metadata]:
        if isinstance(leaf, str):
            names.append(leaf)
        elif inspect.isroutine(leaf):
            names += leaf()
        elif isinstance(leaf, type) and leaf in _KINDS:
            kinds.append(_KINDS[leaf])
    if names:
        kinds = [kind for kind in kinds if kind != _KINDS[str]]
    return names + kinds


def is_number(field: FieldInfo) -> bool:
    """Return whether an option's text may stand for a number.

    Text that does not stays text, for validation.
    """
    kinds = leaves(field.annotation)
    return str not in kinds and (float in kinds or int in kinds)


def _show_all(ctx: click.Context, _: click.Parameter, is_set: bool) -> None:
    if is_set:
        ctx.meta[HELP_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


def help_all() -> click.Option:
    """Build the option that shows the help with all options."""
    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_all,
        help="show all options",
    )


def run_options(model: type[Options]) -> Iterator[click.Option]:
    """Yield the options of any command: how it runs and what it prints."""
    yield click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        help="TOML file of options; the command line wins over it",
    )
    text = "print the report as JSON, and nothing else"
    yield click.Option(["--json", "as_json"], is_flag=True, help=text)
    if model.on_spark:
        text = "setting of the Spark session, e.g. spark.driver.memory=4g; repeatable"
        yield click.Option(["--spark-conf"], multiple=True, metavar="NAME=VALUE", help=text)
    if model.on_connect:
        text = "Spark Connect server, sc://HOST:PORT; input and output are catalog tables"
        yield click.Option(["--remote"], metavar="URL", help=text)
    yield help_all()


class _Formatter(click.HelpFormatter):
    """Breaks no line at a hyphen: ``keep-unprotected`` is one word."""

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = _COLUMN, col_spacing: int = 2
    ) -> None:
        unbroken = [(option, text.replace("-", _HYPHEN)) for option, text in rows]
        super().write_dl(unbroken, col_max, col_spacing)

    def getvalue(self) -> str:
        return super().getvalue().replace(_HYPHEN, "-")


class _Context(click.Context):
    formatter_class = _Formatter


class _Command(click.Command):
    """A command whose errors are one message, and whose options are given once."""

    context_class = _Context

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # else a shell completes a line
            self._check_given_once(ctx, args)
        return super().parse_args(ctx, args)

    def _check_given_once(self, ctx: click.Context, args: list[str]) -> None:
        """Refuse an option of one value that is given again: click takes the last one silently."""
        *_, params = self.make_parser(ctx).parse_args(args=[*args])
        for option in self.get_params(ctx):
            if not isinstance(option, click.Option) or option.multiple or option.is_eager:
                continue
            times = params.count(option)
            if times > 1:
                model = getattr(self, "model", Options)
                what = f"Option {option.opts[0]} must be given once; got it {times} times."
                do = model.once.get(str(option.name), "")
                raise click.UsageError(f"{what} {do}".rstrip(), ctx)

    def invoke(self, ctx: click.Context) -> Any:
        token = ON_COMMAND_LINE.set(True)
        try:
            return self._invoke(ctx)
        finally:
            ON_COMMAND_LINE.reset(token)

    def _invoke(self, ctx: click.Context) -> Any:
        # What libraries log of connections that break off is no message of ours.
        logging.getLogger().addHandler(logging.NullHandler())
        try:
            self._check_arguments(ctx)
            with interrupts.handled():
                return super().invoke(ctx)
        except interrupts.Interrupted as signal:
            end = ctx.meta.get(_UNFINISHED, "")
            if signal.finished:
                end = "The run had come to its end, and what it wrote is whole."
            tell(f"dptext {ctx.info_name}: {signal}. {end}".rstrip())
            ctx.exit(signal.exit_code)
        except Exception as error:
            failure = error
            if type(error).__module__.partition(".")[0] in ("py4j", "pyspark"):
                from dptext_spark.spark.failures import package_error

                failure = package_error(error, "The job failed")
            if not isinstance(failure, DptextError):
                # The traceback would show what it came of, and Spark's may quote rows.
                raise error from None
            tell(f"{_APART}dptext {ctx.info_name}: {failure}")
            if isinstance(failure, JobError):
                ctx.exit(1)
            ctx.exit(2)

    def _check_arguments(self, ctx: click.Context) -> None:
        """Refuse what no path, column or word is that Spark can read."""
        for param in self.params:
            values = ctx.params.get(str(param.name))
            if not isinstance(values, tuple):
                values = (values,)
            for value in values:
                try:
                    str(value).encode()
                except UnicodeEncodeError as error:
                    raise not_utf8(f"The value of {param.get_error_hint(ctx)}", error) from None


class Job(_Command):
    """The command of a class of options, which may come from a TOML file too."""

    def __init__(self, model: type[Options]) -> None:
        self.model = model
        fields = model.fields()
        names = sorted(fields, key=lambda name: not fields[name].is_required())
        params = [
            parameter(name, fields[name], positional=name in model.positional) for name in names
        ]
        super().__init__(
            model.command,
            params=[*params, *run_options(model)],
            help=inspect.getdoc(model),
            context_settings=_SETTINGS,
            callback=self._run,
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        numbers = []
        for name, field in self.model.fields().items():
            if several(field) and is_number(field):
                numbers.append(f"--{name}")
        return super().parse_args(ctx, _spread(args, numbers))

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        formatter.write(f"\nExample:\n  dptext {self.model.command} {self.model.usage}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what must be given and what most need, or all options under their headings."""
        fields = self.model.fields()
        has_all = ctx.meta.get(HELP_ALL, False)
        first = {*self.model.first.split(), *self.model.positional, "config", "help-all", "help"}
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            name = max(param.opts, key=len).removeprefix("--")
            field = fields.get(name)
            if field is None:
                heading = "Running"
            elif field.is_required():
                heading = REQUIRED
            elif has_all:
                heading = field.title or "Noise and key"
            else:
                heading = "Options"
            if not has_all and name not in first and heading != REQUIRED:
                continue
            record = param.get_help_record(ctx)
            if isinstance(param, click.Argument):  # click has none of its own, or an empty one
                record = (param.make_metavar(ctx), help_of(fields[name]))
            if record is not None:
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def _run(
        self,
        config: Path | None,
        as_json: bool,
        spark_conf: Sequence[str] = (),
        remote: str | None = None,
        **values: Any,
    ) -> None:
        arguments: dict[str, Any] = {}
        if config is not None:
            arguments = self.model.named(read_config(config))
        options = self.model.of(arguments | self.model.named(values))
        settings = _spark_settings(spark_conf)
        if remote:
            settings["spark.remote"] = remote
        with stage("Loading libraries") if self.model.on_spark else nullcontext():
            # Not above: it may refuse this Spark, as too old.
            from dptext_spark.spark import session_settings

            run = import_module(self.model.runner.format(command=self.model.command)).run
        click.get_current_context().meta[_UNFINISHED] = options.unfinished
        with interrupts.handled(), session_settings(settings):
            report = run(options)
        java = sys.modules.get("dptext_spark.spark.java")
        if java is not None:
            java.remove_logs()
        if as_json:
            fault = _print(report.to_json(), nl=False)
        else:
            fault = _print(f"{_APART}{report.describe()}")
        end = options.finish(report)
        if end and as_json:
            tell(f"\n{end}")
        elif end and fault is None:
            fault = _print(f"\n{end}")
        if fault is not None:
            _end_unprinted(fault, options, as_json=as_json)


def _print(text: str, *, nl: bool = True) -> OSError | None:
    """Print to standard output; return the error of one that cannot be written."""
    try:
        click.echo(text, nl=nl)
    except OSError as error:
        return error
    return None


def _end_unprinted(fault: OSError, options: Options, *, as_json: bool) -> None:
    """End a run that ended well but whose report could not be printed.

    Where all of its results lie in files nothing is lost, and a scheduler must not run it again.
    """
    results = ", ".join(f"{what.lower()} {path}" for what, path in options.results)
    if not results:
        raise fault
    drop_unwritten(sys.stdout)
    ctx = click.get_current_context()
    end = f"The run ended well, and all that it wrote is whole: {results}."
    line = printable(
        f"dptext {ctx.info_name}: Standard output cannot be written. Got: {fault.strerror}. {end}"
    )
    tell(f"{_APART}{line}")
    ctx.exit(1 if as_json else 0)


def _spark_settings(pairs: Sequence[str]) -> dict[str, str]:
    """Read ``NAME=VALUE`` settings; a message must not quote a value, which may be a password."""
    settings: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or name in settings or not name.startswith("spark."):
            raise ConfigError(
                "Option --spark-conf has a wrong value",
                allowed="NAME=VALUE, each NAME once and beginning with spark.",
                got="a value that is not shown",
            )
        settings[name] = value
    return settings


def _spread(args: Sequence[str], several: Collection[str]) -> list[str]:
    """Repeat options that several numbers may follow: ``--epsilon 5 10``."""
    spread: list[str] = []
    option = None
    for arg in args:
        if option is None or isinstance(number(arg), str):
            name = arg.partition("=")[0]
            option = name if name in several else None
        elif spread[-1] != option:
            spread.append(option)
        spread.append(arg)
    return spread


def read_config(path: Path) -> dict[str, Any]:
    """Read a TOML file whose keys are option names."""
    try:
        return toml_table(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(
            f"The configuration file {path} cannot be read", got=str(error.strerror)
        ) from None
    except UnicodeDecodeError as error:
        raise not_utf8(f"The configuration file {path}", error) from None
    except ValueError as error:
        raise ConfigError(f"The configuration file {path} is not TOML", got=str(error)) from None


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands]  # in the order of definition

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command; what cannot be written is one line, and no traceback."""
        try:
            return super().main(*args, **extra)
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            drop_unwritten(sys.stdout)
            what = "Standard output, or a file, cannot be written"
            tell(f"{_APART}dptext: {what}. Got: {error.strerror}.")
            sys.exit(1)
        finally:
            drop_unwritten(sys.stderr)


@click.group(cls=_Commands, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="dptext")
def main() -> None:
    """Sanitize text columns on Spark under metric differential privacy."""


@main.command("demo", cls=_Command, params=[help_all()])
@click.option(
    "--output", type=click.Path(), default="dptext-demo", show_default=True, help="folder to write"
)
def demo_command(output: str) -> None:
    """Run the whole path on bundled data."""
    from dptext_spark import demo

    demo.run(Path(output))


for _model in COMMANDS.values():
    main.add_command(Job(_model))
