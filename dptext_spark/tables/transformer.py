"""``privatize(df, ...)`` as a stage of a ``pyspark.ml`` pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.ml import Transformer
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql import DataFrame

from dptext_spark.accounting.row_budget import RowBudget
from dptext_spark.errors import ConfigError, check_parameters
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.noise import NoiseKey
from dptext_spark.tables.dataframes import privatize


def _param(name: str, convert: Any = TypeConverters.toString) -> Param[Any]:
    return Param(Params._dummy(), name, f"{name} of privatize(df, ...)", convert)


def _names(value: Any) -> list[str]:
    return TypeConverters.toListString([value] if isinstance(value, str) else value)


class TextPrivatizer(Transformer, DefaultParamsReadable["TextPrivatizer"], DefaultParamsWritable):
    """Sanitizes columns of a frame; its parameters are the arguments of :func:`privatize`.

    A saved stage has neither the key nor its place: set ``key_file`` again after loading. A stage
    without a key file and without a ``name`` makes a fresh key at each call of ``transform``. Raises
    ConfigError where a parameter is wrong or missing, and where a ``name`` has no key file.
    """

    embedding = _param("embedding", lambda value: str(getattr(value, "path", value)))
    mechanism = _param(
        "mechanism", lambda v: v if isinstance(v, dict) else Mechanism.of(v).to_json()
    )
    row_budget = _param(
        "row_budget", lambda v: vars(v if isinstance(v, RowBudget) else RowBudget(**v))
    )
    text, tokens, keep = (_param(name, _names) for name in ("text", "tokens", "keep"))
    id, name, search, oov = map(_param, ("id", "name", "search", "oov"))
    protect, layout, tokenizer = map(_param, ("protect", "layout", "tokenizer"))
    identifiers, numbers, mask_spans = map(_param, ("identifiers", "numbers", "mask_spans"))
    release_words = _param("release_words", TypeConverters.toInt)
    trust_id = _param("trust_id", TypeConverters.toBoolean)

    def __init__(
        self, *unnamed: Any, key_file: str | Path | None = None, **parameters: Any
    ) -> None:
        super().__init__()
        self.key_file = key_file
        names = [param.name for param in self.params]
        check_parameters("TextPrivatizer", names, unnamed, sorted(parameters.keys() - {*names}))
        try:
            self._set(**parameters)
        except TypeError as error:
            got = str(error).rstrip(".")
            raise ConfigError("A parameter of TextPrivatizer has a wrong type", got=got) from None

    def _transform(self, dataset: DataFrame) -> DataFrame:
        given = {param.name: self.getOrDefault(param) for param in self.params if self.isSet(param)}
        if missing := [name for name in ("embedding", "mechanism", "id") if name not in given]:
            raise ConfigError(f"TextPrivatizer lacks the parameters {', '.join(missing)}")
        options = dict(given.pop("mechanism"))
        given["mechanism"] = mechanism(options.pop("mechanism"), **options)
        if "row_budget" in given:
            given["row_budget"] = RowBudget(**given["row_budget"])
        return privatize(
            dataset, key=NoiseKey.read(Path(self.key_file)) if self.key_file else None, **given
        )
