"""Words that texts and vocabularies write in other bytes: which word of the vocabulary a token is."""

import unicodedata
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dptext_spark import Laplace, build_embedding
from dptext_spark.text.columns import PLACEHOLDER, Tokens
from dptext_spark.text.joined import matchable, unique_forms
from dptext_spark.text.tokens import PLAIN
from dptext_spark.word_reader import joining, look_up
from tests.helpers import worlds

APART = "zebra"
SLOTS = pa.list_(pa.struct({"start": pa.int32(), "end": pa.int32()}))


@dataclass(frozen=True, kw_only=True)
class Case:
    """Words of a source, and for tokens of tables the word that each of them is; ``source``: who met it."""

    id: str
    words: list[str]
    tokens: dict[str, str]
    source: str = "own trial"

    def build(self, folder, **options):
        """Build the bundle from bytes, each word a point of its own."""
        words = [*self.words, APART, "lion"]
        points = 9 * np.eye(len(words))
        rows = (
            f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, points, strict=True)
        )
        (folder / "source.txt").write_bytes("".join(rows).encode())
        return build_embedding(folder / "source.txt", folder / "bundle", **options)


BARI, LARKA, SRI = (
    "\u09ac\u09be\u09dc\u09bf",
    "\u0932\u095c\u0915\u093e",
    "\u0dc1\u0dca\u200d\u0dbb\u0dd3",
)
DECOMPOSED, MIKHAHAM = (
    "\u0932\u0921\u093c\u0915\u093e",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
)
PYAT, OBJEKT = "\u043f\u2019\u044f\u0442\u044c", "\u043e\u0431'\u0454\u043a\u0442"
TSAHAL, GEORGE, RABBI = (
    "\u05e6\u05d4\u05f4\u05dc",
    "\u05d2\u05f3\u05d5\u05e8\u05d2\u05f3",
    "\u05e8\u05f3",
)
TIENG, SAO = (unicodedata.normalize("NFD", word) for word in ("ti\u1ebfng", "s\u00e3o_paulo"))
KEYBOARD = ['\u05e6\u05d4"\u05dc', "\u05e6'\u05d9\u05e4\u05e1"]

CASES = [
    Case(id="Bengali nukta letters, which NFC takes apart", words=[BARI],
         tokens={BARI: BARI, "\u09ac\u09be\u09a1\u09bc\u09bf": BARI}, source="w3c/charmod-norm #190"),
    Case(id="Hindi ones that the vocabulary has apart", words=[DECOMPOSED],
         tokens={LARKA: DECOMPOSED, DECOMPOSED: DECOMPOSED}, source="mike-fabian/ibus-typing-booster #531"),
    Case(id="Persian with its non-joiner, which the output keeps", words=[MIKHAHAM],
         tokens={MIKHAHAM: MIKHAHAM, MIKHAHAM.replace("\u200c", ""): MIKHAHAM},
         source="alpheios-project/alpheios-core #491, kepano/defuddle #103"),
    Case(id="Persian without", words=[MIKHAHAM.replace("\u200c", "")],
         tokens={MIKHAHAM: MIKHAHAM.replace("\u200c", "")}, source="meilisearch/charabia #379"),
    Case(id="Sinhala with its joiner, which the output keeps", words=[SRI],
         tokens={SRI: SRI, SRI.replace("\u200d", ""): SRI}, source="google/sentencepiece #629"),
    Case(id="Ukrainian apostrophes", words=[PYAT, OBJEKT],
         tokens={PYAT: PYAT, PYAT.replace("\u2019", "'"): PYAT, PYAT.replace("\u2019", "\u02bc"): PYAT,
                 OBJEKT.replace("'", "\u2019").upper(): OBJEKT}, source="facebookresearch/fastText #1265"),
    Case(id="French apostrophes", words=["aujourd\u2019hui"],
         tokens={"aujourd\u2019hui": "aujourd\u2019hui", "Aujourd'hui": "aujourd\u2019hui"},
         source="MontrealCorpusTools/Montreal-Forced-Aligner #185"),
    Case(id="Catalan middle dots", words=["col\u00b7legi", "la"],
         tokens={"col\u00b7legi": "col\u00b7legi", "COL\u00b7LEGI": "col\u00b7legi", "La": "la"},
         source="Sigil-Ebook/Sigil #21"),
    Case(id="Hebrew marks", words=[TSAHAL, GEORGE, RABBI],
         tokens={TSAHAL: TSAHAL, TSAHAL.replace("\u05f4", '"'): TSAHAL, GEORGE: GEORGE, RABBI: RABBI,
                 GEORGE.replace("\u05f3", "'"): GEORGE, RABBI.replace("\u05f3", "\u2019"): RABBI},
         source="renikud/renikud #10, opensiddur/opensiddur-client #24"),
    Case(id="Hebrew marks from a keyboard", words=KEYBOARD,
         tokens={TSAHAL: KEYBOARD[0], KEYBOARD[1].replace("'", "\u05f3"): KEYBOARD[1]},
         source="opencog/link-grammar #42"),
    Case(id="a Vietnamese vocabulary in NFD", words=[TIENG],
         tokens={"ti\u1ebfng": TIENG, TIENG: TIENG, "TI\u1ebeNG": TIENG},
         source="undertheseanlp/underthesea #382, vshulcz/deja-vu #1098"),
    Case(id="Turkish capitals", words=["istanbul", "\u0130zmir", "izmir"],
         tokens={"\u0130STANBUL": "istanbul", "i\u0307stanbul": "istanbul", "\u0130zmir": "\u0130zmir",
                 "\u0130ZM\u0130R": "izmir", "I\u0307zmir": "\u0130zmir"}, source="shreyaskarnik/argo #46"),
    Case(id="Turkish words that Python made small", words=["i\u0307stanbul"],
         tokens={"\u0130STANBUL": "i\u0307stanbul", "istanbul": "i\u0307stanbul"},
         source="GloVe 6B, line 57886"),
    Case(id="joined words of a vocabulary in NFD", words=[SAO],
         tokens={"s\u00e3o_paulo": SAO, "S\u00c3O_Paulo": SAO}, source="vshulcz/deja-vu #1098"),
    Case(id="soft hyphens", words=["Donau\u00addampf", "fahrt"],
         tokens={"Donaudampf": "Donau\u00addampf", "fa\u00adhrt": "fahrt"}),
    Case(id="of words that become one the first",
         words=["o'brien", "o\u2019brien", "O\u2019Brien", "e\u0301", "\u00e9"],
         tokens={"o\u2019brien": "o'brien", "o'brien": "o'brien", "O'Brien": "O\u2019Brien",
                 "\u00e9": "e\u0301"},
         source="GloVe 6B, line 76341"),
    Case(id="as written before lower case", words=["polish", "Polish", "\u00c9tat", "\u00e9tat"],
         tokens={"Polish": "Polish", "POLISH": "polish", "E\u0301tat": "\u00c9tat",
                 "\u00c9TAT": "\u00e9tat"}),
    Case(id="words that look alike and are others", words=["fin", "resume", "ilik", "the"],
         tokens={"\ufb01n": PLACEHOLDER, "r\u00e9sum\u00e9": PLACEHOLDER, "\u0131l\u0131k": PLACEHOLDER,
                 "\uff34\uff28\uff25": PLACEHOLDER}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_token_is_the_word_that_a_reader_sees(case, tmp_path):
    """In texts, elements and slots; the output has the source's spelling."""
    # Rejects one side that is normalized alone, NFC that composes what Unicode excludes, lower case first.
    bundle, found = case.build(tmp_path), [*case.tokens.values()]
    release, slots = (
        worlds.sanitizer(bundle, Laplace(epsilon=1e6), protect=protect)  # gives each word back
        for protect in ("all", "slots:s")
    )
    texts = [f"{APART} {token}, lion" for token in case.tokens]
    shown = [f"{APART} {word} lion" for word in found]
    ids = range(len(texts))
    assert release.sanitize(texts, [*ids], column="c").values.to_pylist() == shown
    lists = pa.array([[*case.tokens]])
    assert release.sanitize(lists, [0], column="c").values.to_pylist() == [found]
    spans = [
        [{"start": len(APART) + 1, "end": len(APART) + 1 + len(token)}] for token in case.tokens
    ]
    marked = slots.sanitize(texts, [*ids], column="c", slots=pa.array(spans, SLOTS))
    assert marked.values.to_pylist() == shown
    assert bundle.manifest.unmatchable == bundle.forms.null_count  # only what an earlier word takes


@pytest.mark.parametrize("listed", [TIENG, "ti\u1ebfng", "TI\u1ebeNG", "ti\u00ad\u1ebfng"])
def test_lists_name_words_in_any_spelling(listed, tmp_path):
    case = next(case for case in CASES if case.words == [TIENG])
    (tmp_path / "list.txt").write_bytes(f"{listed}\nlion\n".encode())
    chosen = case.build(tmp_path, release_words=tmp_path / "list.txt")
    assert chosen.words.to_pylist()[: chosen.releasable] == [TIENG, "lion"]
    (tmp_path / "list.txt").write_bytes(listed.encode())
    denied = case.build(tmp_path, never_output=tmp_path / "list.txt", overwrite=True)
    assert denied.words.to_pylist()[denied.releasable :] == [TIENG]


def test_a_clitic_in_the_spelling_of_the_vocabulary_is_joined(tmp_path):
    bundle = Case(id="", words=["dog", "\u2019s"], tokens={}).build(tmp_path)
    sanitizer = worlds.sanitizer(bundle, Laplace(epsilon=1e6))
    released = sanitizer.sanitize(["a Dog's lion"], [1], column="c").values
    assert released.to_pylist() == ["[MASK] dog\u2019s lion"]


PIECES = [
    *"abiI'\"._- \u00b7\u2019\u05f3\u05f4\u05d2\u05e8",
    *"\u0130\u0307\u0301\u00ad\u200b\u200d\u09dc\u0e01", "'s",
    "n't",
]  # fmt: skip
WORDS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join)
AROUND = ("{}", "x{}", "{}.", "b {}", "{} b")


@given(st.lists(WORDS, min_size=1, unique=True))
@example(["\u05d2'", "\u05d2", "a\u00a0b", "a b", "a_b", "'s", "i\u0307", "i", "\u200b", "a.", "a"])
@settings(deadline=None)
def test_what_can_be_in_no_text_is_in_none(words):
    """Rejects a word that is called impossible and found, and one that is called possible and is not."""
    forms = unique_forms(words)
    texts = [
        around.format(word)
        for word in (*words, *forms.drop_null().to_pylist())
        for around in AROUND
    ]
    bundle = SimpleNamespace(forms=forms)
    found = look_up(Tokens.of(pa.array(texts), joining.__wrapped__(bundle, PLAIN)), bundle)
    assert {*found.tolist()} - {-1} == {*np.flatnonzero(matchable(forms)).tolist()}
