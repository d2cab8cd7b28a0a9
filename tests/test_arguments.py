"""Wrong uses in Python: what was given, what is taken, how to get there; arguments, not options."""

import inspect
import pydoc
import subprocess
import sys

import pandas as pd
import pytest

import dptext_spark
from dptext_spark import (
    DptextError,
    Embedding,
    Exponential,
    Guarantee,
    Laplace,
    NoiseKey,
    Release,
    RowBudget,
    Sanitizer,
    Target,
    TextPolicy,
    build_embedding,
    evaluate,
    privatize,
    privatize_table,
    register_udf,
)
from dptext_spark.arguments import ON_COMMAND_LINE, naming_arguments
from dptext_spark.errors import ConfigError
from dptext_spark.options import PrivatizeOptions
from dptext_spark.text.policies import PolicyParameters
from tests.helpers.worlds import KEY

FRAME = pd.DataFrame({"id": [1, 1], "text": ["w1 w2", "w3"]})
LAPLACE = Laplace(epsilon=8)
NO_KEY = "No such file or directory. Make one with: (umask 077; openssl rand -hex 32 > KEYFILE)."
FEATURES = "an Arrow array, a pandas Series, a NumPy array of one dimension, or a list"


class DataFrame:
    """A frame of a library that is not installed."""

    __module__ = "polars.dataframe.frame"


def released(df, **arguments):
    given = {"embedding": "glove", "mechanism": LAPLACE, "id": "id", "text": "text"}
    return privatize(df, **given | arguments)


def opened(small, **arguments):
    return Release.open(**{"embedding": small, "mechanism": LAPLACE} | arguments)


def sanitized(small, values, ids, **arguments):
    return Sanitizer.open(opened(small)).sanitize(values, ids, **{"column": "text"} | arguments)


WRONG = {
    "a frame of pandas": (
        lambda _: released(FRAME),
        "df must be a Spark DataFrame; got pandas.DataFrame. Write spark.createDataFrame(df).",
    ),
    "a frame of polars": (
        lambda _: released(DataFrame()),
        "df must be a Spark DataFrame; got polars.DataFrame. "
        "Write spark.createDataFrame(df.to_pandas()).",
    ),
    "a path as a frame": (
        lambda _: released("queries.parquet"),
        "df must be a Spark DataFrame; got str. Write spark.read.parquet(path).",
    ),
    "a key file that is not there": (
        lambda small: Sanitizer.open(opened(small), "release.key"),
        f"The key file release.key cannot be read. Got: {NO_KEY}",
    ),
    "bytes as a key": (
        lambda small: Sanitizer.open(opened(small), bytes(32)),
        "key must be a NoiseKey, or the path of a key file; got bytes. "
        "Make one with: (umask 077; openssl rand -hex 32 > KEYFILE).",
    ),
    "text as a secret": (
        lambda _: NoiseKey("0" * 32),
        "secret must be 32 bytes; got str. Read a file with NoiseKey.read(path).",
    ),
    "one mechanism for several": (
        lambda small: evaluate(["w1"], [1], embedding=small, mechanisms=LAPLACE),
        "mechanisms must be a list, such as [Laplace(epsilon=8)]; got Laplace.",
    ),
    "the class of a mechanism": (
        lambda small: opened(small, mechanism=Laplace),
        "mechanism must be a Mechanism, such as Laplace(epsilon=8); got the class Laplace.",
    ),
    "a mechanism without epsilon": (
        lambda small: opened(small, mechanism="laplace"),
        "epsilon is missing. Give it with the name of the mechanism: mechanism='laplace', "
        "epsilon=8.",
    ),
    "two epsilons": (
        lambda small: opened(small, epsilon=5),
        "epsilon is given twice. Leave it out: Laplace(epsilon=8.0) has its own.",
    ),
    "an embedding for a release": (
        Sanitizer.open,
        "release must be a Release; got Embedding. "
        "Make one with Release.open(embedding=..., mechanism=Laplace(epsilon=8)).",
    ),
    "vectors for a bundle": (
        lambda _: Embedding.of(FRAME),
        "embedding must be an Embedding, or the path of its bundle; got pandas.DataFrame. "
        "Make a bundle with 'dptext embedding SOURCE --output BUNDLE'.",
    ),
    "no path": (lambda _: build_embedding(3, "bundle"), "source must be a path; got int."),
    "the name of a search": (
        lambda small: opened(small, search="ivf"),
        "search must be a Search; got str. Leave it out for exact search among all words.",
    ),
    "a dict as a policy": (
        lambda small: opened(small, policy={"oov": "drop"}),
        "policy must be a TextPolicy, such as TextPolicy(oov='drop'); got dict.",
    ),
    "a mistyped policy": (
        lambda _: TextPolicy(oov="dorp"),
        "The out-of-vocabulary policy (oov) is unknown. Allowed: mask, drop, random, fail, "
        "keep-unprotected. Got: 'dorp'. Perhaps you meant drop.",
    ),
    "text as a loss": (
        lambda _: RowBudget(loss="50", within=3),
        "loss of a row budget must be a number; got str.",
    ),
    "a number as a target": (
        lambda _: Target.parse(0.2),
        "target must be text, such as 'recovery(top1) <= 0.2'; got float.",
    ),
    "a frame as a column": (
        lambda small: sanitized(small, FRAME, FRAME["id"]),
        f"Column text cannot be read. Allowed: {FEATURES}, with values of one kind and no more "
        "than 2 GiB. Got: pandas.DataFrame. Take one column of it, such as df['text'].",
    ),
    "ids that repeat": (
        lambda small: sanitized(small, FRAME["text"], FRAME["id"]),
        "Row ids must be unique: rows of one id show whether their texts are equal. Got: 2 rows, "
        "1 distinct ids. Give other ids, or vouch for these with trust_id=True.",
    ),
    "an id too few": (
        lambda small: sanitized(small, FRAME["text"], [1]),
        "Column text has 2 rows but 1 id. Take both from the same rows.",
    ),
    "a column of Spark as a name": (
        lambda small: sanitized(small, ["w1"], [1], column=FRAME["text"]),
        "column must be the name of the column; got pandas.Series. Write column='text': the noise "
        "depends on this name.",
    ),
    "no session": (
        lambda small: register_udf("clean", "t", embedding=small, mechanism=LAPLACE, column="t"),
        "spark must be a SparkSession; got str. Write register_udf(spark, 'clean', ...).",
    ),
    "a key without a name": (
        lambda _: privatize_table(
            input="in", output="out", embedding="b", mechanism=LAPLACE, text="t", key=KEY
        ),
        "Options of privatize are wrong:\n  A key that can be used again needs the name of this "
        "release (name). Allowed: one name for each table and version, such as 'queries "
        "2026-03-01'. Got: none. Under one key and name two tables would show which of their texts "
        "are equal.",
    ),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_use_is_refused_with_a_way_out(small, call, message):
    """Rejects an AttributeError or TypeError from inside, and options in a message of Python."""
    with pytest.raises(DptextError) as refused:
        call(small)
    assert str(refused.value) == message


def test_ids_may_repeat_where_the_caller_vouches_for_them(small):
    """Rejects a check that cannot be left out; equal ids and texts get equal noise."""
    result = sanitized(small, ["w1 w2", "w1 w2"], [1, 1], trust_id=True)
    first, second = result.values.to_pylist()
    assert first == second


def test_a_command_names_options():
    """Rejects Python's names on the command line, and names inside a command that is advised."""
    message = "Leave out --release-words, give --search ivf:recall=R, or run dptext try --oov drop"

    @naming_arguments()
    def fail():
        raise ConfigError("Option --name is missing", do=message)

    with pytest.raises(ConfigError) as refused:
        fail()
    assert str(refused.value) == (
        "name is missing. Leave out release_words, give search='ivf:recall=R', or run dptext try "
        "--oov drop."
    )
    token = ON_COMMAND_LINE.set(True)
    try:
        with pytest.raises(ConfigError) as refused:
            fail()
    finally:
        ON_COMMAND_LINE.reset(token)
    assert str(refused.value) == f"Option --name is missing. {message}."


def test_privatize_table_has_every_option_and_the_arguments_of_privatize():
    """Rejects an option that Python lacks, and two dialects."""
    arguments = {*inspect.signature(privatize_table).parameters}
    options = {*PrivatizeOptions.model_fields} - {*PolicyParameters.model_fields}
    renamed = {"spec": "mechanism", "key_file": "key", "read_option": "read_options"}
    renamed |= {"write_option": "write_options"}
    assert arguments == {renamed.get(name, name) for name in options} | {"policy"}
    of_frames = {*inspect.signature(privatize).parameters}
    assert of_frames - arguments == {"df", "counts", "show"}


def test_privatize_table_takes_objects(monkeypatch, small):
    """Rejects an object's representation as the value of an option, and a key in what is reported."""
    seen = []
    monkeypatch.setattr("dptext_spark.jobs.privatize.run", seen.append)
    given = {"input": "in", "output": "out", "text": "t", "key": KEY, "name": "n"}
    given |= {"read_options": {"header": "true"}, "row_budget": RowBudget(loss=5, within=2)}
    words = TextPolicy(oov="drop", mask_spans="spans")
    of_objects = {"embedding": small, "mechanism": Exponential(epsilon=2, truncate=6)}
    privatize_table(**given, **of_objects, policy=words)
    of_names = {"embedding": str(small.path), "mechanism": "exponential:truncate=6", "epsilon": 2}
    privatize_table(**given, **of_names, policy=words)
    first, second = seen
    assert first == second
    assert (first.noise_key(), first.policy, first.read_options) == (KEY, words, {"header": "true"})
    assert RowBudget.of(first.row_budget) == RowBudget(loss=5, within=2)
    for shown in (str(first.to_json()), first.model_dump_json()):
        assert KEY.secret.hex() not in shown and repr(KEY.secret)[2:-1] not in shown


def test_values_are_shown_as_the_commands_show_them(small):
    """Rejects a representation in one line, and HTML that what is shown could break."""
    release = opened(small, name="<b>")
    guarantee: Guarantee = release.guarantee()
    assert repr(guarantee).startswith(f"{guarantee.summary()}\n\nOdds change by ")
    assert "<td" in guarantee._repr_html_() and "its 10th nearest word" in guarantee._repr_html_()
    assert "mechanism    Laplace(epsilon=8.0)" in repr(release)
    assert "&lt;b&gt;" in release._repr_html_() and "<b>" not in release._repr_html_()
    mechanisms = [Laplace(epsilon=2.0), Laplace(epsilon=20.0)]
    texts = [f"w{row} w{row + 1} w{row + 2}" for row in range(40)]
    comparison = evaluate(texts, range(40), embedding=small, mechanisms=mechanisms)
    lines = repr(comparison).splitlines()
    assert lines[0].split() == ["recovered", "floor", "similarity", "floor", "unchanged", "no",
                                "other", "beats", "it"]  # fmt: skip
    assert [line.split()[:4] for line in lines[1:]] == [
        ["--mechanism", "laplace", "--epsilon", epsilon] for epsilon in ("2", "20")
    ]
    assert comparison._repr_html_().count("<tr>") == 3


def test_the_package_lists_its_names_and_begins_with_an_example():
    """Rejects modules among the names, and a help that begins with how names are imported."""
    assert dir(dptext_spark) == sorted(dptext_spark.__all__)
    code = "import dptext_spark; print(dir(dptext_spark) == sorted(dptext_spark.__all__))"
    fresh = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert fresh.stdout == "True\n"
    text = pydoc.plain(pydoc.render_doc(dptext_spark))
    assert "from dptext_spark import Laplace, privatize\n" in text.partition("PACKAGE CONTENTS")[0]
