"""Public reports as a release writes them, and what they must say."""

import json
import re

import numpy as np
import pytest

from dptext_spark.accounting.row_budget import RowBudget
from dptext_spark.embedding.lists import make_lists
from dptext_spark.errors import ConfigError
from dptext_spark.estimates.released import ReleasedColumn
from dptext_spark.mechanisms import Exponential, Laplace
from dptext_spark.options import PrivatizeOptions
from dptext_spark.release import Release
from dptext_spark.report.facts import Report, release_facts
from dptext_spark.search.ivf import IvfSearch
from dptext_spark.text.policies import TextPolicy
from tests.helpers import worlds

OPTIONS = {"input": "in", "output": "out", "embedding": "b", "text": ["text"], "epsilon": 4.0}


def report_of(release, recall=None, **changes):
    """The public report of a release, as its job writes it."""
    mechanism = release.mechanism
    values = OPTIONS | {"mechanism": mechanism.spec, "epsilon": mechanism.epsilon} | changes
    options = PrivatizeOptions.of(values)
    facts = release_facts(
        release,
        release.guarantee(),
        recall,
        options=options.to_json(),
        row_id="",
        kept=["id"],
        sanitized=options.text,
    )
    return Report(facts=facts, text="").to_publish(options.published)


def changed(report, *names, value=None):
    """A report without one of its facts, or with another one."""
    facts = json.loads(report)
    inner = facts
    for name in names[:-1]:
        inner = inner[name]
    del inner[names[-1]]
    if value is not None:
        inner[names[-1]] = value
    return json.dumps(facts)


def test_the_release_is_rebuilt_from_its_public_report(small):
    """Rejects another mechanism, epsilon, search or number of outputs."""
    release = Release.open(embedding=small, mechanism=Exponential(epsilon=4.0, truncate=3.0))
    column = ReleasedColumn.read(report_of(release), small, "text")
    assert (column.mechanism, column.search) == (release.mechanism, release.search)
    assert column.row_epsilons is None and not column.has_random_words and not len(column.passing)
    assert column.epsilons_of(np.array([3, 9])).tolist() == [4.0, 4.0]
    words = Release.open(embedding=small, mechanism=Laplace(epsilon=4.0), search=worlds.among(50))
    assert ReleasedColumn.read(report_of(words), small, "text").search == words.search


def test_a_search_in_lists_is_rebuilt(tmp_path):
    """Rejects the exact search where lists found other words."""
    bundle = worlds.build(tmp_path, worlds.uneven(300, 50), release_words=200)
    make_lists(bundle, 8)
    search = IvfSearch.over(bundle, 200, lists=8, probes=2)
    release = Release.open(embedding=bundle, mechanism=Laplace(epsilon=4.0), search=search)
    recall = {"lists": 8, "probes": 2, "said": ""}
    column = ReleasedColumn.read(report_of(release, recall), bundle, "text")
    assert column.search == search


def test_epsilons_of_rows_are_those_of_the_budget(small):
    """Rejects the largest epsilon for all rows."""
    budget = RowBudget(loss=30.0, within=1.0)
    release = Release.open(embedding=small, mechanism=Laplace(epsilon=4.0), row_budget=budget)
    column = ReleasedColumn.read(report_of(release, **{"row-budget": "30"}), small, "text")
    assert column.row_epsilons == release.row_epsilons
    words = np.array([1, 20, 300])
    assert np.array_equal(column.epsilons_of(words), release.row_epsilons.of_rows(words))


def test_words_that_pass_and_random_ones_are_known(demo_bundle):
    """Rejects stop words that are taken for perturbed ones."""
    policy = TextPolicy(protect="content", oov="random")
    release = Release.open(embedding=demo_bundle, mechanism=Laplace(epsilon=4.0), policy=policy)
    report = report_of(release, protect="content", oov="random")
    column = ReleasedColumn.read(report, demo_bundle, "text")
    names = demo_bundle.words.take(column.passing).to_pylist()
    assert {"the", "not", "she"} <= {*names} and "movie" not in names and column.has_random_words


def test_what_cannot_be_inverted_is_refused_by_name(small, plane):
    """Rejects estimates from a report that is not of this table, bundle or kind of release."""
    release = Release.open(embedding=small, mechanism=Laplace(epsilon=4.0))
    report = report_of(release)
    slots = report_of(release, protect="slots:marks")
    budget = changed(report, "options", "row-budget", value="30")
    two = changed(budget, "options", "tokens", value=["words"])
    nested = changed(report, "options", "text", value=["turns[].text"])
    cases = [
        (report, plane, "text", "made with another embedding"),
        (report, small, "body", "did not sanitize this column. Allowed: text. Got: body"),
        (nested, small, "turns[].text", "inside arrays cannot be estimated"),
        (slots, small, "text", "--protect slots:marks cannot be inverted"),
        (two, small, "text", "several columns under a row budget cannot be inverted"),
        (budget, small, "text", "Got: no row_budget"),
        (changed(report, "options", "oov"), small, "text", "Got: no oov"),
        (changed(report, "search"), small, "text", "Got: no search"),
        (
            changed(report, "embedding", "release_words"),
            small,
            "text",
            "no embedding.release_words",
        ),
        (
            changed(report, "embedding", "withheld_words", value=7),
            small,
            "text",
            "withheld other words than this version does. Allowed: 0 words that look like "
            "identifiers. Got: 7",
        ),
        (
            changed(report, "identifier_patterns", value="abc"),
            small,
            "text",
            "had other --identifier-patterns. Allowed: abc. Got: none. Give the file",
        ),
        (changed(report, "options", "mechanism"), small, "text", "not of a release of words"),
        (changed(report, "format_version", value=9), small, "text", "another format"),
        ("[]", small, "text", "cannot be read. Give the public report"),
        ("<html>", small, "text", "cannot be read"),
    ]
    for text, bundle, column, message in cases:
        with pytest.raises(ConfigError, match=re.escape(message)):
            ReleasedColumn.read(text, bundle, column)


@pytest.mark.parametrize(
    ("names", "value"),
    [
        (("options",), 5),
        (("options", "text"), 5),
        (("options", "mechanism"), [1]),
        (("options", "epsilon"), [1]),
        (("embedding", "fingerprint"), 5),
        (("embedding", "release_words"), "zebulon"),
    ],
)
def test_a_report_of_another_form_is_refused(small, names, value):
    """Rejects errors of whatever another form leads to, which may quote it."""
    release = Release.open(embedding=small, mechanism=Laplace(epsilon=4.0))
    with pytest.raises(ConfigError) as caught:
        ReleasedColumn.read(changed(report_of(release), *names, value=value), small, "text")
    assert "zebulon" not in str(caught.value)
