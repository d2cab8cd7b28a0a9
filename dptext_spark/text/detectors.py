"""Detectors: models that find names and addresses in texts, where workers read them.

The choice of what is hidden is a detector's. No bound covers it.
"""

from __future__ import annotations

import hashlib
import inspect
import traceback
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from operator import index
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, ClassVar, Final, TypeAlias

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.sealing import file_sha256
from dptext_spark.text.columns import Span, is_inside, merged
from dptext_spark.text.named_policy import NamedPolicy

Find: TypeAlias = Callable[[list[str]], Iterable[Iterable[tuple[int, int]]]]
"""Finds spans in texts: for each a start and an end, in code points, the end exclusive."""

_REMEMBERED: Final = 1 << 24
"""Characters of texts whose spans a process remembers: runs read a batch several times."""
_TEXTS: Final = 64
"""Texts that a model looks at together."""
_DIGITS: Final = 12


class Detector(NamedPolicy):
    """A detector as an option names it: small, picklable, comparable.

    Attributes:
        version: Of all that decides what it finds, as the driver has it.
    """

    kind = "detector"
    option = "--spans-by"
    policies: ClassVar[dict[str, type[Detector]]] = {}
    version: str

    @classmethod
    def of(cls, value: Detector | str) -> Detector:
        name, _, rest = str(value).partition(":")
        parts = [*name.split("."), rest]
        is_function = isinstance(value, str) and all(map(str.isidentifier, parts))
        if is_function and name not in cls.policies:
            return OwnDetector(name, rest)
        return super().of(value)

    @classmethod
    def forms(cls) -> list[str]:
        return [*super().forms(), "MODULE:FUNCTION"]

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", self.present_version())

    @property
    def identity(self) -> str:
        """Its name and version, for the noise's context, reports and the ledger."""
        return f"{self} {self.version}"

    @abstractmethod
    def present_version(self) -> str:
        """Return the version that this process imports."""

    @abstractmethod
    def load(self) -> Find:
        """Return what finds spans; called once in a process."""

    def spans(self, texts: Sequence[str | None]) -> list[list[Span]]:
        """Return the spans of each text, in order, none touching the next; null has none."""
        return _opened(self).spans(texts)


class _Opened:
    """A detector that is loaded, and the spans of the texts that it saw last."""

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._find = detector.load()
        self._spans: dict[str, list[Span]] = {"": []}
        self._characters = 0

    def spans(self, texts: Sequence[str | None]) -> list[list[Span]]:
        if self._characters > _REMEMBERED:
            self._spans = {"": []}
            self._characters = 0
        new_texts: dict[str, None] = {}
        for text in texts:
            if text is not None and text not in self._spans:
                new_texts[text] = None
        if new_texts:
            self._look_at([*new_texts])
        return [self._spans[text or ""] for text in texts]

    def _look_at(self, texts: list[str]) -> None:
        """Find the spans of texts, and remember them."""
        with _Called(f"Detector {self._detector}"):
            results = [[*spans] for spans in self._find([*texts])]
        if len(results) != len(texts):
            raise InputError(
                f"Detector {self._detector} must return one list of spans for each text",
                got=f"{len(results)} lists for {len(texts)} texts",
            )
        for text, spans in zip(texts, results, strict=True):
            self._spans[text] = merged([self._checked(span, len(text)) for span in spans])
            self._characters += len(text)

    def _checked(self, span: Any, size: int) -> Span:
        """Return a span as two numbers inside of its text."""
        problem = "a span that is no pair of whole numbers"
        try:
            start, end = map(index, span)
        except (TypeError, ValueError):
            pass
        else:
            if is_inside((start, end), size):
                return start, end
            problem = f"{start} to {end} in a text of {size} characters"
        raise InputError(
            f"Detector {self._detector} must return spans inside of their texts",
            allowed="(start, end) in code points, the end exclusive and after the start",
            got=problem,
        )


@lru_cache(maxsize=2)  # a reused worker must not keep the models of all its runs
def _opened(detector: Detector) -> _Opened:
    version = detector.present_version()
    if version != detector.version:
        raise InputError(
            f"Detector {detector} is another one on a worker than on the driver",
            allowed=f"version {detector.version}",
            got=version,
            do="Install the same on all hosts",
        )
    return _Opened(detector)


class _Called(AbstractContextManager[None]):
    """Raises an exception of a detector's code as an error with its type and line.

    The message may quote a text: neither it nor the exception goes along.
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            *_, frame = traceback.extract_tb(trace)
            place = f"{Path(frame.filename).name}, line {frame.lineno}"
            raise InputError(
                f"{self._what} failed", got=f"{type(error).__name__} in {place}"
            ) from None


def _imported(name: str, do: str) -> ModuleType:
    try:
        return import_module(name)
    except Exception as error:
        raise ConfigError(
            f"Module {name} of {Detector.option} cannot be imported",
            got=f"{type(error).__name__}: {error}",
            do=do,
        ) from error


@dataclass(frozen=True)
class OwnDetector(Detector):
    """A function of a module of the user's, which may have a function ``init`` to call first."""

    module: str
    function: str
    version: str = field(init=False, default="")

    def __str__(self) -> str:
        return f"{self.module}:{self.function}"

    def present_version(self) -> str:
        """Return the module's ``__version__``, or else a hash of its source."""
        module = self._module()
        version = getattr(module, "__version__", None)
        if isinstance(version, str):
            return version
        try:
            source = inspect.getsource(module)
        except (OSError, TypeError):
            source = ""
        if not source:
            raise ConfigError(
                f"Module {self.module} of {self.option} has no version and no source to hash",
                do='Give it __version__ = "1", another one whenever it finds something else',
            )
        return hashlib.sha256(source.encode()).hexdigest()[:_DIGITS]

    def load(self) -> Find:
        module = self._module()
        init = getattr(module, "init", None)
        if callable(init):
            with _Called(f"Function init of detector {self}"):
                init()
        find: Find = getattr(module, self.function)
        return find

    def _module(self) -> ModuleType:
        """Return the module, which has the function."""
        module = _imported(
            self.module,
            "Put its folder on PYTHONPATH; workers of a cluster get it by spark-submit --py-files",
        )
        if not callable(getattr(module, self.function, None)):
            raise ConfigError(
                f"Module {self.module} of {self.option} lacks the function", got=self.function
            )
        return module


class _Model(Detector):
    """A pipeline of spaCy's, by the name of its package or its folder, and what it looks for."""

    libraries: ClassVar[tuple[str, ...]] = ("spacy",)
    model: str
    labels: str

    def present_version(self) -> str:
        """Return the versions of libraries and model, of a folder also a hash of its files."""
        versions = []
        for name in self.libraries:
            extra = f'pip install "dptext-spark[{self.name}]"'
            module = _imported(name, f"Install it on all hosts: {extra}")
            versions.append(f"{name} {_version_of(module)}")
        spacy = import_module("spacy")
        folder = Path(self.model)
        if spacy.util.is_package(self.model):
            versions.append(_version_of(import_module(self.model)))
        elif folder.joinpath("meta.json").is_file():
            versions.append(_folder_hash(folder))
        else:
            raise ConfigError(
                f"Model {self.model} of {self.option} is not installed",
                do="Install its package on all hosts, or name a folder that all of them have",
            )
        return ", ".join(versions)

    def pipeline(self) -> Any:
        """Load the pipeline; refuse one without a component that finds names."""
        pipeline = import_module("spacy").load(self.model)
        for name in pipeline.pipe_names:
            if "doc.ents" in pipeline.get_pipe_meta(name).assigns:
                return pipeline
        raise ConfigError(
            f"Model {self.model} of {self.option} finds no names",
            allowed="a pipeline with ner or an entity ruler",
            got=", ".join(pipeline.pipe_names) or "an empty pipeline",
        )

    def chosen(self, by_default: str, possible: Iterable[str]) -> list[str]:
        """Return the labels to look for; refuse such as the model lacks."""
        possible = sorted(possible)
        labels = (self.labels or by_default).split(",")
        present = [label for label in labels if label in possible]
        if not present or (self.labels and present != labels):
            raise ConfigError(
                f"Model {self.model} of {self.option} lacks labels",
                allowed=", ".join(possible),
                got=self.labels or by_default,
            )
        return present


@dataclass(frozen=True)
class SpacyDetector(_Model):
    """Names of people and places, as a pipeline of spaCy's labels them."""

    name = "spacy"
    # As the pipelines of all languages call them.
    default: ClassVar[str] = (
        "PERSON,PER,PRS,PS,persName,GPE,GPE_LOC,LOC,LC,LOCATION,FAC,FACILITY,placeName,geogName"
    )

    model: str
    labels: str = ""
    version: str = field(init=False, default="")

    def load(self) -> Find:
        pipeline = self.pipeline()
        possible: set[str] = set()
        for name in pipeline.pipe_names:
            if "doc.ents" in pipeline.get_pipe_meta(name).assigns:
                possible.update(pipeline.get_pipe(name).labels)
        labels = frozenset(self.chosen(self.default, possible))

        def find(texts: list[str]) -> Iterable[list[tuple[int, int]]]:
            for document in pipeline.pipe(texts, batch_size=_TEXTS):
                entities = [entity for entity in document.ents if entity.label_ in labels]
                yield [(entity.start_char, entity.end_char) for entity in entities]

        return find


@dataclass(frozen=True)
class PresidioDetector(_Model):
    """Entities that Presidio's analyzer finds with a pipeline of spaCy's."""

    name = "presidio"
    libraries = ("presidio_analyzer", "spacy")
    default: ClassVar[str] = "PERSON,LOCATION"

    model: str
    labels: str = ""
    version: str = field(init=False, default="")

    def load(self) -> Find:
        presidio = import_module("presidio_analyzer")
        pipeline = self.pipeline()
        language = pipeline.lang
        models = [{"lang_code": language, "model_name": self.model}]
        engine = import_module("presidio_analyzer.nlp_engine").SpacyNlpEngine(models=models)
        engine.nlp = {language: pipeline}  # loaded: it would download a model that is missing
        analyzer = presidio.AnalyzerEngine(nlp_engine=engine, supported_languages=[language])
        entities = self.chosen(self.default, analyzer.get_supported_entities(language))
        batches = presidio.BatchAnalyzerEngine(analyzer)

        def find(texts: list[str]) -> Iterable[list[tuple[int, int]]]:
            results = batches.analyze_iterator(
                texts, language, batch_size=_TEXTS, entities=entities
            )
            for entities_of_text in results:
                yield [(entity.start, entity.end) for entity in entities_of_text]

        return find


def _version_of(module: ModuleType) -> str:
    try:
        return version(module.__name__)
    except PackageNotFoundError:
        return str(getattr(module, "__version__", "unknown"))


def _folder_hash(folder: Path) -> str:
    """Hash the files of a folder, with their names."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            name = file.relative_to(folder).as_posix()
            digest.update(f"{name}\0{file_sha256(file)}\n".encode())
    return digest.hexdigest()[:_DIGITS]
