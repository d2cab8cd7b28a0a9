"""The ``dptext`` command; ``jobs/*.py`` are the same commands for spark-submit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import click
from pydantic.fields import FieldInfo

from dptext_spark import __version__
from dptext_spark.config import (
    MECHANISM_OPTIONS,
    audit_options,
    calibrate_options,
    embedding_options,
    poincare_options,
    privatize_options,
    read_config,
    vectors_options,
)
from dptext_spark.errors import ConfigError, DptextError, JobError
from dptext_spark.mechanisms import MECHANISMS
from dptext_spark.options import (
    BUNDLE_WORLD,
    AuditOptions,
    CalibrateOptions,
    EmbeddingOptions,
    Options,
    PoincareOptions,
    PrivatizeOptions,
    TableOptions,
    VectorsOptions,
    option_name,
)
from dptext_spark.report import drawing

Decorator = Callable[[Callable[..., None]], Callable[..., None]]


class _Command(click.Command):
    """A command whose options may come from a TOML file and whose errors are one message."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        several = {p.opts[0] for p in self.params if p.multiple and p.type is click.FLOAT}
        return super().parse_args(ctx, _spread(args, several))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DptextError as error:
            click.echo(f"dptext {ctx.info_name}: {error}", err=True)
            ctx.exit(1 if isinstance(error, JobError) else 2)


def _spread(args: Sequence[str], several: Collection[str]) -> list[str]:
    """Repeat options that several numbers may follow: ``--epsilon 5 10`` and ``--epsilon 5,10``."""
    parts = [part for arg in args for part in (arg.split("=", 1) if arg.split("=")[0] in several else [arg])]
    spread: list[str] = []
    option = None
    for part in parts:
        numbers = part.split(",")
        if option is None or not all(map(_is_number, numbers)):
            option = part if part in several else None
            spread.append(part)
            continue
        if spread[-1] == option:
            spread.pop()
        spread += [repeated for number in numbers for repeated in (option, number)]
    return spread


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="dptext")
def main() -> None:
    """Sanitize text columns on Spark under metric differential privacy."""


def options_of(model: type[Options], *, positional: Sequence[str] = ()) -> Decorator:
    """Give a command one option for each field of ``model``, and ``--config``.

    Values reach the command under their option names; None or an empty tuple means not given.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        # Options that must be given come first.
        ordered = sorted(model.model_fields.items(), key=lambda item: not item[1].is_required())
        for name, field in reversed(ordered):
            if name in positional:
                function = click.argument(name, required=False)(function)
            elif name == "mechanism":
                own = {field.alias for field in model.model_fields.values()}
                shared = {name: info for name, info in MECHANISM_OPTIONS.items() if name not in own}
                for parameter, info in reversed(shared.items()):
                    function = _option(parameter, info)(function)
                function = click.option("--mechanism", help=" | ".join(sorted(MECHANISMS)))(function)
            else:
                function = _option(field.alias or option_name(name), field)(function)
        return click.option(
            "--config",
            type=click.Path(path_type=Path),
            is_eager=True,
            expose_value=False,
            callback=_load_config,
            help="TOML file of these options; an option given here wins over the file",
        )(function)

    return decorate


def _option(name: str, field: FieldInfo) -> Decorator:
    kind = field.annotation
    text = field.description or ""
    if kind is bool:
        return click.option(f"--{name}", name.replace("-", "_"), is_flag=True, default=None, help=text)
    if not field.is_required() and field.default not in (None, (), ""):
        text += f"; default: {field.default}"
    return click.option(
        f"--{name}",
        name.replace("-", "_"),
        type=_TYPES.get(kind, str),
        multiple=kind in (tuple[str, ...], tuple[float, ...]),
        help=text,
    )


_TYPES: dict[Any, Any] = {
    float: float,
    float | None: float,
    tuple[float, ...]: float,
    int: int,
    int | None: int,
}


def _load_config(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    options = {
        p.opts[0].removeprefix("--"): p.name for p in ctx.command.params if p.name not in (None, "config")
    }
    parameters = {p.name: p for p in ctx.command.params}
    try:
        values = read_config(path, {option: str(name) for option, name in options.items()})
        ctx.default_map = {name: _typed(parameters[name], value) for name, value in values.items()}
    except ConfigError as error:
        click.echo(f"dptext {ctx.info_name}: {error}", err=True)
        ctx.exit(2)


def _typed(parameter: click.Parameter, value: Any) -> Any:
    """Check a TOML value's type, for click would turn 5.5 into 5 and a string into its letters."""
    if parameter.multiple and not isinstance(value, list):
        value = [value]
    kind = {"float": float | int, "integer": int, "boolean": bool}.get(parameter.type.name, str | int)
    items = value if parameter.multiple and isinstance(value, list) else [value]
    if not all(isinstance(item, kind) and isinstance(item, bool) == (kind is bool) for item in items):
        raise ConfigError(
            f"Option {parameter.opts[0].removeprefix('--')} in the configuration file has the wrong type",
            allowed=("one or a list of " if parameter.multiple else "") + parameter.type.name,
            got=repr(value),
        )
    return value


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {option_name(name): value for name, value in values.items() if value not in (None, ())}


@main.command("embedding", cls=_Command)
@options_of(EmbeddingOptions, positional=["source"])
def embedding_command(**values: Any) -> None:
    """Turn an embedding SOURCE into a bundle that the other commands read."""
    from dptext_spark.embedding.build import build_embedding

    options = embedding_options(_given(values))
    bundle = build_embedding(**dict(options))
    manifest = bundle.manifest
    click.echo(
        f"{options.output}: {manifest.words:,} words, {manifest.releasable:,} may be output, "
        f"{manifest.dimension} dimensions, fingerprint {manifest.fingerprint[:16]}"
    )


@main.command("privatize", cls=_Command)
@options_of(PrivatizeOptions)
def privatize_command(**values: Any) -> None:
    """Sanitize columns of a Parquet table into another one."""
    options = privatize_options(_given(values))
    from dptext_spark.spark import run_privatize  # loads pyspark, which takes a while

    _announce(run_privatize(options).describe(), options)


@main.command("vectors", cls=_Command)
@options_of(VectorsOptions)
def vectors_command(**values: Any) -> None:
    """Release vectors, or texts as averages of word vectors, by random projection and noise."""
    options = vectors_options(_given(values))
    from dptext_spark.spark import run_vectors

    _announce(run_vectors(options).describe(), options)


def _announce(report: str, options: TableOptions) -> None:
    click.echo(report)
    if options.dry_run:
        click.echo("\nDry run: all options are right, nothing was written.")
    else:
        places = [("Output", options.output), *((what, path) for what, _, path in options.files)]
        click.echo("\n" + "\n".join(f"{what}: {path}" for what, path in places))


@main.command("audit", cls=_Command)
@options_of(AuditOptions)
def audit_command(**values: Any) -> None:
    """Check the running code against its claimed guarantee; the exit code is 1 where it breaks it."""
    options = audit_options(_given(values))
    if BUNDLE_WORLD in options.worlds:
        from dptext_spark.spark import run_audit
    else:
        from dptext_spark.audit.verdict import run_audit
    report = run_audit(options)
    click.echo(report.describe())
    report.finish(options.report)


@main.command("calibrate", cls=_Command)
@options_of(CalibrateOptions)
def calibrate_command(**values: Any) -> None:
    """Measure what a mechanism does to words at several epsilons, before anything is released."""
    options = calibrate_options(_given(values))
    _warn_undrawn("report.html and plots", drawing.PAGE)
    from dptext_spark.spark import run_calibrate

    click.echo(run_calibrate(options).describe())
    click.echo(f"\nOutput: {options.output}")


@main.command("poincare", cls=_Command)
@options_of(PoincareOptions)
def poincare_command(**values: Any) -> None:
    """Train a Poincaré embedding of is-a pairs and make it a bundle."""
    options = poincare_options(_given(values))
    _warn_undrawn("the picture", drawing.PICTURE)
    from dptext_spark.spark import run_poincare  # loads pyspark, which takes a while

    report = run_poincare(options)
    click.echo(report.describe())
    click.echo(f"\nBundle: {options.output}\nReport: {options.report_path}")


def _warn_undrawn(what: str, module: str) -> None:
    """Say before the work begins what will be missing at its end."""
    if library := drawing.missing_library(module):
        click.echo(
            f"Warning: {what} will not be drawn, as {library} is not installed. "
            "Run: pip install 'dptext-spark[report]'",
            err=True,
        )


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
