"""The ``dptext`` command; ``jobs/*.py`` are the same commands for spark-submit."""

from __future__ import annotations

import difflib
import inspect
import logging
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import EnumType
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_args

import click
from pydantic.fields import FieldInfo

from dptext_spark import interrupts
from dptext_spark.errors import ConfigError, DptextError, JobError
from dptext_spark.options import COMMANDS, MechanismOptions, Options
from dptext_spark.options.validation import OneOf, repeatable
from dptext_spark.version import __version__

_METAVARS: Final = {float: "NUMBER", int: "INTEGER", Path: "PATH", str: "TEXT"}

_UNFINISHED: Final = "dptext.unfinished"
"""Where a command keeps what is to be said of a run that is interrupted."""


class _Command(click.Command):
    """A command whose errors are one message."""

    def invoke(self, ctx: click.Context) -> Any:
        # What libraries log of connections that break off is no message of ours.
        logging.getLogger().addHandler(logging.NullHandler())
        try:
            with interrupts.handled():
                return self._invoke(ctx)
        except DptextError as error:
            click.echo(f"dptext {ctx.info_name}: {error}", err=True)
            ctx.exit(1 if isinstance(error, JobError) else 2)
        except interrupts.Interrupted as signal:
            left = ctx.meta.get(_UNFINISHED, "")
            end = "The run had come to its end, and what it wrote is whole." if signal.finished else left
            click.echo(f"dptext {ctx.info_name}: {signal}. {end}".rstrip(), err=True)
            ctx.exit(signal.exit_code)

    def _invoke(self, ctx: click.Context) -> Any:
        """Run; exceptions of Spark's that no job expected become one message too."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("py4j", "pyspark"):
                raise
            from dptext_spark.spark.failures import plain

            raise plain(error, "The job failed") from None


class Job(_Command):
    """The command of a class of options, which may come from a TOML file too."""

    def __init__(self, model: type[Options]) -> None:
        config = click.Option(
            ["--config"],
            type=click.Path(path_type=Path),
            help="TOML file of these options; an option given here wins over the file",
        )
        params = [config, *_parameters(model)]
        super().__init__(model.command, params=params, help=inspect.getdoc(model), callback=self._run)
        self.model = model

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        several = {f"--{n}" for n, f in self.model.fields().items() if repeatable(f) and _number(f)}
        return super().parse_args(ctx, _spread(args, several))

    def _run(self, config: Path | None, **values: Any) -> None:
        names = {str(p.name): p.opts[0].removeprefix("--") for p in self.params if p.name != "config"}
        file = {} if config is None else read_config(config, {*names.values()})
        given = {names[name]: value for name, value in values.items() if value not in (None, ())}
        options = self.model.of(file | given)
        click.get_current_context().meta[_UNFINISHED] = options.unfinished
        with interrupts.handled():
            report = import_module(f"dptext_spark.spark.jobs.{self.model.command}").run(options)
        click.echo(report.describe())
        if said := options.finish(report):
            click.echo(f"\n{said}")


def _spread(args: Sequence[str], several: Collection[str]) -> list[str]:
    """Repeat options that several numbers may follow: ``--epsilon 5 10`` and ``--epsilon 5,10``."""
    parts = [part for arg in args for part in (arg.split("=", 1) if arg.split("=")[0] in several else [arg])]
    spread: list[str] = []
    option = None
    for part in parts:
        numbers = part.split(",")
        if option is None or any(_read(number, float) is number for number in numbers):
            option = part if part in several else None
            spread.append(part)
            continue
        if spread[-1] == option:
            spread.pop()
        spread += [repeated for number in numbers for repeated in (option, number)]
    return spread


def _read(text: str, number: type[float] | None) -> Any:
    """Turn an option's text into a number; other text stays text, for validation to refuse."""
    try:
        return text if number is None else number(text)
    except ValueError:
        return text


def _parameters(model: type[Options]) -> Iterator[click.Parameter]:
    """One option for each field, those that must be given first; a mechanism's own follow it."""
    fields = model.fields()
    for name, field in sorted(fields.items(), key=lambda item: not item[1].is_required()):
        if name in model.positional:
            yield click.Argument([name], required=False)
        elif name == "mechanism" and issubclass(model, MechanismOptions):
            choice = f"[{'|'.join(model.mechanisms())}]"
            yield click.Option(["--mechanism"], metavar=choice, help=field.description)
            own = model.mechanism_options().items()
            yield from (_option(n, of, len(model.mechanisms())) for n, of in own if n not in fields)
        else:
            yield _option(name, {"": field}, 1)


def _option(name: str, fields: Mapping[str, FieldInfo], owners: int) -> click.Option:
    """One option for the fields of its name, by mechanism; where they differ, the help says which is whose.

    Raises:
        TypeError: They cannot be one option.
    """
    shapes = {(field.annotation is bool, repeatable(field), _number(field)) for field in fields.values()}
    if len(shapes) > 1:
        raise TypeError(f"Mechanisms {' and '.join(fields)} have options --{name} of different types")
    (flag, several, number), texts = shapes.pop(), dict[str, list[str]]()
    for mechanism, field in fields.items():
        texts.setdefault(_help(field), []).append(mechanism)
    common = len(texts) == 1 and len(fields) == owners
    said = "; ".join(text if common else f"{', '.join(of)}: {text}" for text, of in texts.items())
    names = [f"--{name}", name.replace("-", "_")]
    if flag:
        return click.Option(names, is_flag=True, default=None, help=said)
    kinds = "|".join(dict.fromkeys(map(_metavar, fields.values())))
    return click.Option(
        names, type=lambda text: _read(text, number), multiple=several, metavar=kinds, help=said
    )


def _help(field: FieldInfo) -> str:
    shown = field.annotation is not bool and not field.is_required() and field.default not in (None, (), "")
    return f"{field.description}; default: {field.default}" if shown else str(field.description)


def _metavar(field: FieldInfo) -> str:
    """Say what an option takes: ``INTEGER``, or ``[mask|drop]`` where there is a choice."""
    leaves = _leaves(field.annotation)
    kinds = [_METAVARS[leaf] for leaf in leaves if isinstance(leaf, type) and leaf in _METAVARS]
    choices = [leaf for leaf in leaves if isinstance(leaf, str)]
    if registered := [name for item in field.metadata if isinstance(item, OneOf) for name in item.names()]:
        kinds, choices = [], registered
    return f"[{'|'.join([*kinds, *choices])}]" if choices else "|".join(kinds)


def _number(field: FieldInfo) -> type[float] | None:
    """Give the type of number that an option's text stands for, if it is one."""
    leaves = _leaves(field.annotation)
    return None if str in leaves else next((kind for kind in (float, int) if kind in leaves), None)


def _leaves(kind: Any) -> list[Any]:
    """Give the types and the values that an annotation is made of."""
    parts = [*kind] if isinstance(kind, EnumType) else get_args(kind)
    return [leaf for part in parts for leaf in _leaves(part)] if parts else [kind]


def read_config(path: Path, allowed: Collection[str]) -> dict[str, Any]:
    """Read a TOML file whose keys are option names, ``allowed`` those of the command.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or has an unknown key.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"The configuration file {path} cannot be read", got=str(error.strerror)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The configuration file {path} is not TOML", got=str(error)) from None
    if unknown := [key for key in values if key not in allowed]:
        hints = [f"{k} -> {near[0]}" for k in unknown if (near := difflib.get_close_matches(k, allowed))]
        raise ConfigError(
            f"The configuration file {path} has unknown options",
            allowed=", ".join(sorted(allowed)),
            got=", ".join(unknown),
            do=f"Perhaps you meant {', '.join(hints)}" if hints else "Remove them",
        )
    return values


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="dptext")
def main() -> None:
    """Sanitize text columns on Spark under metric differential privacy."""


for _model in COMMANDS.values():
    main.add_command(Job(_model))


@main.command("demo", cls=_Command)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("dptext-demo"),
    show_default=True,
    help="folder for the demo's tables",
)
def demo_command(output: Path) -> None:
    """Run the whole path on data that ships with the package."""
    from dptext_spark import demo

    demo.run(output)


if __name__ == "__main__":
    sys.exit(main())
