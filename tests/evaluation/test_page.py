"""An evaluation's facts on its page."""

import pytest

from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.page import page as page_of
from tests.helpers import evaluations
from tests.helpers.page import drawn


@pytest.mark.parametrize("target", [None, evaluations.MET, evaluations.UNMET])
def test_the_page_of_an_evaluation_has_its_answer_first(found, target, tmp_path):
    data = page_of(evaluations.facts(found, target=target))
    page, met = drawn(tmp_path / "out", data), target == evaluations.MET
    lead, answer = page.text.split("The answer", 1)
    assert "Private. These numbers were measured on private rows" in lead and STRONGER in lead
    assert [a["id"] for a in page.attributes("h2")] == [
        "answer",
        "front",
        "rows",
        "settings",
        "run",
    ]
    answer, rest = answer.split("What is kept for what is given away")
    for said, where, when in (
        ("take --mechanism laplace --epsilon 5", answer, met),
        ("Add the filter --where", answer, met),
        ("no setting here meets it", answer, target == evaluations.UNMET),
        ("No setting here keeps recovery to 20%", answer, target is None),
        ("No other setting beats these", answer, True),
        ("--mechanism laplace --epsilon 1000000", answer, True),
        ("(recommended)", rest, met),
        *(
            (text, rest, True)
            for text in ("in-context", "Nothing released, or random words", "The original")
        ),
        *((text, rest, True) for text in ("Unchanged words", "Proven.")),
        *((text, rest, True) for text in ("Linked to their originals", "Rows with the word")),
    ):
        assert (said in where) == when, said
    assert [a["class"] for a in page.attributes("tr") if "class" in a] == ["marked"] * 2 * met
