"""``privatize(df, ...)`` as a stage of a ``pyspark.ml`` pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.ml import Transformer
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql import DataFrame

from dptext_spark.accounting.row_budget import RowBudget
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.faults import check_names
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.noise import NoiseKey, check_label
from dptext_spark.options.configured import as_json
from dptext_spark.spark.frames import privatize


def _names(value: Any) -> list[str]:
    return TypeConverters.toListString([value] if isinstance(value, str) else value)


def _path(value: Any) -> str:
    return str(value.path if isinstance(value, Embedding) else value)


def _mechanism(value: Any) -> dict[str, Any]:
    """A mechanism as a stage is saved with it: its options by their names."""
    return dict(value) if isinstance(value, Mapping) else as_json(Mechanism.of(value))


def _budget(value: Any) -> dict[str, float]:
    """A row budget as a stage is saved with it: its numbers by their names."""
    return vars(value if isinstance(value, RowBudget) else RowBudget(**value))


def _param(name: str, doc: str, converter: Any) -> Param[Any]:
    return Param(Params._dummy(), name, doc, converter)


class TextPrivatizer(Transformer, DefaultParamsReadable["TextPrivatizer"], DefaultParamsWritable):
    """Sanitizes columns of a frame; its parameters are the arguments of :func:`privatize`.

    What comes out are the sanitized and kept columns alone. A stage that is saved has no key, nor its place:
    after loading, give ``key_file`` again, or each call of ``transform`` makes a fresh key.

    Args:
        key_file: Of the noise key, for repeatable releases, which need a ``salt``; read at each
            ``transform``.
        parameters: ``embedding`` (a path), ``mechanism``, ``id``, and ``text`` or ``tokens`` must be given.

    Raises:
        ConfigError: A parameter is unknown or has no name, or one that must be given is missing.
    """

    embedding = _param("embedding", "folder of the embedding bundle", _path)
    mechanism = _param("mechanism", "how words are perturbed", _mechanism)
    id = _param("id", "column that names each row", TypeConverters.toString)
    text = _param("text", "string columns to sanitize", _names)
    tokens = _param("tokens", "array<string> columns to sanitize", _names)
    keep = _param("keep", "columns that pass as they are", _names)
    oov = _param("oov", "treatment of words outside the vocabulary", TypeConverters.toString)
    protect = _param("protect", "which words are perturbed", TypeConverters.toString)
    layout = _param("layout", "what surrounds the words of texts", TypeConverters.toString)
    tokenizer = _param("tokenizer", "what cuts texts into words", TypeConverters.toString)
    release_words = _param("release_words", "output only the first so many words", TypeConverters.toInt)
    search = _param("search", "how the nearest word is found", TypeConverters.toString)
    row_budget = _param("row_budget", "what a row may lose: loss, within, delta", _budget)
    salt = _param("salt", "with a key file: the name of what is released", TypeConverters.toString)
    trust_id = _param("trust_id", "skip the check of the ids", TypeConverters.toBoolean)

    def __init__(self, *unnamed: Any, key_file: str | Path | None = None, **parameters: Any) -> None:
        super().__init__()
        self.key_file = key_file
        names, owner = [param.name for param in self.params], type(self).__name__
        check_names(owner, names, unnamed, sorted(parameters.keys() - {*names}))
        try:
            self._set(**parameters)
        except TypeError as error:
            raise ConfigError(
                f"A parameter of {owner} has a wrong type", got=str(error).rstrip(".")
            ) from None

    def _transform(self, dataset: DataFrame) -> DataFrame:
        given = {param.name: self.getOrDefault(param) for param in self.params if self.isSet(param)}
        if missing := [name for name in ("embedding", "mechanism", "id") if name not in given]:
            raise ConfigError(f"{type(self).__name__} lacks the parameters {', '.join(missing)}")
        check_label(self.key_file, given.get("salt", ""))
        options = dict(given.pop("mechanism"))
        if "row_budget" in given:
            given["row_budget"] = RowBudget(**given["row_budget"])
        return privatize(
            dataset,
            mechanism=mechanism(options.pop("mechanism"), **options),
            key=NoiseKey.read(Path(self.key_file)) if self.key_file else None,
            **given,
        )
