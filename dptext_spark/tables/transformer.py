"""``privatize(df, ...)`` as a stage of a ``pyspark.ml`` pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.ml import Transformer
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql import DataFrame

from dptext_spark.accounting.row_budget import RowBudget
from dptext_spark.arguments import naming_arguments
from dptext_spark.errors import ConfigError, check_parameters
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.noise import NoiseKey
from dptext_spark.tables.dataframes import privatize
from dptext_spark.text.policies import TextPolicy


def _param(name: str, convert: Any = TypeConverters.toString) -> Param[Any]:
    return Param(Params._dummy(), name, f"{name} of privatize(df, ...)", convert)


def _names(value: Any) -> list[str]:
    if isinstance(value, str):
        value = [value]
    return TypeConverters.toListString(value)


def _path(value: Any) -> str:
    """Return the path of a bundle, or of its folder."""
    return str(getattr(value, "path", value))


# What is saved with a stage is JSON.


def _mechanism_json(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return Mechanism.of(value).to_json()


def _policy_json(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return TextPolicy.of(value).to_json()


def _row_budget_json(value: Any) -> dict[str, Any]:
    budget = value if isinstance(value, RowBudget) else RowBudget(**value)
    return vars(budget)


class TextPrivatizer(Transformer, DefaultParamsReadable["TextPrivatizer"], DefaultParamsWritable):
    """Sanitizes columns of a frame; its parameters are the arguments of :func:`privatize`.

    A saved stage contains neither key nor path: set ``key`` again after loading. A stage without a
    key and without a ``name`` makes a fresh key at each call of ``transform``.

    Raises:
        ConfigError: A parameter is wrong or missing, or a ``name`` has no key.
    """

    embedding = _param("embedding", _path)
    mechanism = _param("mechanism", _mechanism_json)
    id = _param("id")
    text = _param("text", _names)
    tokens = _param("tokens", _names)
    keep = _param("keep", _names)
    policy = _param("policy", _policy_json)
    release_words = _param("release_words", TypeConverters.toInt)
    search = _param("search")
    row_budget = _param("row_budget", _row_budget_json)
    name = _param("name")
    trust_id = _param("trust_id", TypeConverters.toBoolean)

    @naming_arguments()
    def __init__(
        self,
        *unnamed: Any,
        key: NoiseKey | str | Path | None = None,
        epsilon: float | None = None,
        **parameters: Any,
    ) -> None:
        super().__init__()
        self.key = key
        names = [param.name for param in self.params]
        check_parameters("TextPrivatizer", names, unnamed, sorted(parameters.keys() - {*names}))
        if epsilon is not None:
            parameters["mechanism"] = Mechanism.of(parameters.get("mechanism"), epsilon)
        try:
            self._set(**parameters)
        except TypeError as error:
            got = str(error).rstrip(".")
            raise ConfigError("A parameter of TextPrivatizer has a wrong type", got=got) from None

    def _transform(self, dataset: DataFrame) -> DataFrame:
        arguments: dict[str, Any] = {}
        for param in self.params:
            if self.isSet(param):
                arguments[param.name] = self.getOrDefault(param)
        missing = [name for name in ("embedding", "mechanism", "id") if name not in arguments]
        if missing:
            raise ConfigError(f"TextPrivatizer lacks the parameters {', '.join(missing)}")
        parameters = dict(arguments["mechanism"])
        arguments["mechanism"] = mechanism(parameters.pop("mechanism"), **parameters)
        if "policy" in arguments:
            arguments["policy"] = TextPolicy(**arguments["policy"])
        if "row_budget" in arguments:
            arguments["row_budget"] = RowBudget(**arguments["row_budget"])
        return privatize(dataset, **arguments, key=self.key)
