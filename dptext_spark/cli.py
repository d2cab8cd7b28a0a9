"""The ``dptext`` command; ``jobs/*.py`` are the same commands for spark-submit."""

from __future__ import annotations

import inspect
import logging
import os
import sys
import tomllib
from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
from pydantic.fields import FieldInfo

from dptext_spark import interrupts
from dptext_spark.bars import stage
from dptext_spark.errors import ConfigError, DptextError, JobError, leaves, not_utf8, number, range_of
from dptext_spark.options import COMMANDS, Options, several
from dptext_spark.version import __version__

REQUIRED: Final = "Required"
_SETTINGS: Final = {"max_content_width": 110, "help_option_names": ["-h", "--help"]}
_APART: Final = "\n" if "PYSPARK_GATEWAY_PORT" in os.environ else ""  # from Spark's lines, under spark-submit
_KINDS: Final = {float: "NUMBER", int: "INTEGER", Path: "PATH", str: "TEXT"}

# What a command keeps while it runs: what to say of a run that is interrupted; that its help has all options.
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
    choice = f"[{listed}]" if len(name) + len(listed) < 26 else "NAME"  # in front of the description
    return click.Option(
        [f"--{name}"],
        type=kind,
        multiple=several(field),
        metavar=listed if listed.isupper() else choice,
        help=help_of(field),
    )


def help_of(field: FieldInfo) -> str:
    """Say what an option is, its default, and the numbers that it takes."""
    said = str(field.description)
    if field.annotation is not bool and not field.is_required() and field.default not in (None, (), ""):
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


def run_options(model: type[Options]) -> Iterator[click.Option]:
    """Make the options that say how a command runs and what it prints, whatever it does."""
    yield click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        help="TOML file of options; the command line wins over it",
    )
    flag: dict[str, Any] = {"is_flag": True}
    yield click.Option(["--json", "as_json"], **flag, help="print the report as JSON, and nothing else")
    if model.on_spark:
        text = "of the session, as spark.driver.memory=4g; repeatable"
        yield click.Option(["--spark-conf"], multiple=True, metavar="NAME=VALUE", help=text)
    if model.on_connect:
        text = "a server of Spark Connect, sc://HOST:PORT; input and output are catalog tables"
        yield click.Option(["--remote"], metavar="URL", help=text)
    flag |= {"is_eager": True, "expose_value": False, "callback": _show_all}
    yield click.Option(["--help-all"], **flag, help="show all options")


class _Command(click.Command):
    """A command whose errors are one message."""

    def invoke(self, ctx: click.Context) -> Any:
        # What libraries log of connections that break off is no message of ours.
        logging.getLogger().addHandler(logging.NullHandler())
        try:
            self._check_arguments(ctx)
            with interrupts.handled():
                return super().invoke(ctx)
        except interrupts.Interrupted as signal:
            left = ctx.meta.get(_UNFINISHED, "")
            end = "The run had come to its end, and what it wrote is whole." if signal.finished else left
            click.echo(f"dptext {ctx.info_name}: {signal}. {end}".rstrip(), err=True)
            ctx.exit(signal.exit_code)
        except Exception as error:
            failure = error
            if type(error).__module__.partition(".")[0] in ("py4j", "pyspark"):
                from dptext_spark.spark.failures import plain

                failure = plain(error, "The job failed")
            if not isinstance(failure, DptextError):
                raise error from None  # the traceback would show what it came of, and Spark's may quote rows
            click.echo(f"{_APART}dptext {ctx.info_name}: {failure}", err=True)
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
                record = param.get_help_record(ctx) or (param.make_metavar(ctx), help_of(fields[name]))
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records, col_max=32)

    def _run(
        self,
        config: Path | None,
        as_json: bool,
        spark_conf: Sequence[str] = (),
        remote: str | None = None,
        **values: Any,
    ) -> None:
        given = {name: value for name, value in values.items() if value not in (None, ())}
        options = self.model.of(({} if config is None else read_config(config)) | given)
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
        click.echo(report.to_json() if as_json else f"{_APART}{report.describe()}", nl=not as_json)
        if said := options.finish(report):
            click.echo(f"\n{said}", err=as_json)


def _pairs(settings: Sequence[str]) -> dict[str, str]:
    """Read ``NAME=VALUE`` settings; a message must not quote a value, which may be a password."""
    pairs = {name: value for name, sign, value in (text.partition("=") for text in settings) if sign}
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
        raise ConfigError(f"The configuration file {path} cannot be read", got=str(error.strerror)) from None
    except UnicodeDecodeError as error:
        raise not_utf8(f"The configuration file {path}", error) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The configuration file {path} is not TOML", got=str(error)) from None


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands]  # not by the alphabet


@click.group(cls=_Commands, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="dptext")
def main() -> None:
    """Sanitize text columns on Spark under metric differential privacy."""


@main.command("demo", cls=_Command)
@click.option("--output", type=click.Path(), default="dptext-demo", show_default=True, help="folder")
def demo_command(output: str) -> None:
    """Try all of it on data of the package."""
    from dptext_spark import demo

    demo.run(Path(output))


for _model in COMMANDS.values():
    main.add_command(Job(_model))
