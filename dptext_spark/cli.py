"""The ``dptext`` command; ``jobs/*.py`` are the same commands for spark-submit."""

from __future__ import annotations

import errno
import inspect
import logging
import os
import sys
import tomllib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
from pydantic.fields import FieldInfo

from dptext_spark import interrupts
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
from dptext_spark.version import __version__

REQUIRED: Final = "Required"
_UNWRITABLE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
_SETTINGS: Final = {"max_content_width": 110, "help_option_names": ["-h", "--help"]}
_APART: Final = (
    "\n" if "PYSPARK_GATEWAY_PORT" in os.environ else ""
)  # from Spark's lines, under spark-submit
_KINDS: Final = {float: "NUMBER", int: "INTEGER", Path: "PATH", str: "TEXT"}

_COLUMN: Final = 32  # of the help, for an option and its values
_HYPHEN: Final = "\u2011"  # one at which no line is broken

# What a command keeps while it runs: what to say of a run that is interrupted; that its help has
# all options.
_UNFINISHED: Final = "dptext.unfinished"
_HELP_ALL: Final = "dptext.help-all"


def parameter(name: str, field: FieldInfo, *, positional: bool) -> click.Parameter:
    """Make the parameter of a field."""
    values = values_of(field)
    kind: Any = click.Path() if "PATH" in values else number if is_number(field) else str
    if positional:
        metavar = name.upper() if field.is_required() else None
        return click.Argument([name], required=False, metavar=metavar, type=kind)
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
        type=kind,
        multiple=several(field),
        metavar=metavar,
        help=help_of(field),
    )


def help_of(field: FieldInfo) -> str:
    """Say what an option is, its default, and the numbers that it takes."""
    said = str(field.description)
    if (
        field.annotation is not bool
        and not field.is_required()
        and field.default not in (None, (), "")
    ):
        default = field.default if isinstance(field.default, tuple) else (field.default,)
        said += f"; default: {' '.join(map(str, default))}"
    range_ = range_of(field) if is_number(field) else ""
    return f"{said} [{range_}]" if range_ and "e-" not in range_ else said


def values_of(field: FieldInfo) -> list[str]:
    """Give what an option takes: what users write in capitals, and values as they are."""
    found = [*leaves(field.annotation), *field.metadata]
    names = [leaf for leaf in found if isinstance(leaf, str)]
    names += [name for leaf in found if inspect.isroutine(leaf) for name in leaf()]
    kinds = [_KINDS[leaf] for leaf in found if isinstance(leaf, type) and leaf in _KINDS]
    return names + [kind for kind in kinds if kind != _KINDS[str] or not names]


def is_number(field: FieldInfo) -> bool:
    """Say whether an option's text may stand for a number; what does not stays text for validation."""
    found = leaves(field.annotation)
    return str not in found and (float in found or int in found)


def _show_all(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.meta[_HELP_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


def help_all() -> click.Option:
    """Make the option that shows the help with all options."""
    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_all,
        help="show all options",
    )


def run_options(model: type[Options]) -> Iterator[click.Option]:
    """Make the options that say how a command runs and what it prints, whatever it does."""
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
        whole = [(first, second.replace("-", _HYPHEN)) for first, second in rows]
        super().write_dl(whole, col_max, col_spacing)

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
        """Refuse an option of one value that is given again: the last one would win without a word."""
        *_, given = self.make_parser(ctx).parse_args(args=[*args])
        for option in self.get_params(ctx):
            times = given.count(option)
            if (
                isinstance(option, click.Option)
                and times > 1
                and not (option.multiple or option.is_eager)
            ):
                what = f"Option {option.opts[0]} must be given once; got it {times} times."
                raise click.UsageError(what, ctx)

    def invoke(self, ctx: click.Context) -> Any:
        # What libraries log of connections that break off is no message of ours.
        logging.getLogger().addHandler(logging.NullHandler())
        try:
            self._check_arguments(ctx)
            with interrupts.handled():
                return super().invoke(ctx)
        except interrupts.Interrupted as signal:
            left = ctx.meta.get(_UNFINISHED, "")
            end = (
                "The run had come to its end, and what it wrote is whole."
                if signal.finished
                else left
            )
            tell(f"dptext {ctx.info_name}: {signal}. {end}".rstrip())
            ctx.exit(signal.exit_code)
        except Exception as error:
            failure = error
            if type(error).__module__.partition(".")[0] in ("py4j", "pyspark"):
                from dptext_spark.spark.failures import package_error

                failure = package_error(error, "The job failed")
            if not isinstance(failure, DptextError):
                raise error from None  # the traceback would show what it came of, and Spark's may quote rows
            tell(f"{_APART}dptext {ctx.info_name}: {failure}")
            ctx.exit(1 if isinstance(failure, JobError) else 2)

    def _check_arguments(self, ctx: click.Context) -> None:
        """Refuse what no path, column or word is that Spark can read."""
        for param in self.params:
            given = ctx.params.get(str(param.name))
            for value in given if isinstance(given, tuple) else (given,):
                try:
                    str(value).encode()
                except UnicodeEncodeError as error:
                    raise not_utf8(f"The value of {param.get_error_hint(ctx)}", error) from None


class Job(_Command):
    """The command of a class of options, which may come from a TOML file too."""

    def __init__(self, model: type[Options]) -> None:
        self.model, fields = model, model.fields()
        names = sorted(fields, key=lambda name: not fields[name].is_required())
        own = [parameter(name, fields[name], positional=name in model.positional) for name in names]
        super().__init__(
            model.command,
            params=[*own, *run_options(model)],
            help=inspect.getdoc(model),
            context_settings=_SETTINGS,
            callback=self._run,
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        fields = self.model.fields().items()
        numbers = {f"--{name}" for name, field in fields if several(field) and is_number(field)}
        return super().parse_args(ctx, _spread(args, numbers))

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        formatter.write(f"\nExample:\n  dptext {self.model.command} {self.model.usage}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what must be given and what most need, or all options under their headings."""
        fields, everything = self.model.fields(), ctx.meta.get(_HELP_ALL, False)
        shown = {*self.model.first.split(), *self.model.positional, "config", "help-all", "help"}
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            name, heading = max(param.opts, key=len).removeprefix("--"), "Running"
            if field := fields.get(name):
                heading = field.title or "Noise and key"
                heading = REQUIRED if field.is_required() else heading if everything else "Options"
            if everything or name in shown or heading == REQUIRED:
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
        from_file = {} if config is None else self.model.named(read_config(config))
        options = self.model.of(from_file | self.model.named(values))
        settings = _pairs(spark_conf) | ({"spark.remote": remote} if remote else {})
        with stage("Loading libraries") if self.model.on_spark else nullcontext():
            # Not above: it may refuse this Spark, as too old.
            from dptext_spark.spark import session_settings

            run = import_module(self.model.runner.format(command=self.model.command)).run
        click.get_current_context().meta[_UNFINISHED] = options.unfinished
        with interrupts.handled(), session_settings(settings):
            report = run(options)
        if java := sys.modules.get("dptext_spark.spark.java"):
            java.remove_logs()
        text = report.to_json() if as_json else f"{_APART}{report.describe()}"
        fault = _print(text, nl=not as_json)
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


def _pairs(settings: Sequence[str]) -> dict[str, str]:
    """Read ``NAME=VALUE`` settings; a message must not quote a value, which may be a password."""
    pairs = {
        name: value for name, sign, value in (text.partition("=") for text in settings) if sign
    }
    if len(pairs) < len(settings) or not all(name.startswith("spark.") for name in pairs):
        raise ConfigError(
            "Option --spark-conf has a wrong value",
            allowed="NAME=VALUE, each NAME once and beginning with spark.",
            got="a value that is not shown",
        )
    return pairs


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
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(
            f"The configuration file {path} cannot be read", got=str(error.strerror)
        ) from None
    except UnicodeDecodeError as error:
        raise not_utf8(f"The configuration file {path}", error) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The configuration file {path} is not TOML", got=str(error)) from None


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands]  # not by the alphabet

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command; what cannot be written, as to a full disk, is one line, and no traceback."""
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
    "--output", type=click.Path(), default="dptext-demo", show_default=True, help="folder"
)
def demo_command(output: str) -> None:
    """Try all of it on data of the package."""
    from dptext_spark import demo

    demo.run(Path(output))


for _model in COMMANDS.values():
    main.add_command(Job(_model))
