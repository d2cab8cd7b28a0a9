"""Public embedding files as they are: one odd row refuses none, and no row is left out in silence.

Rejects vectors that are one row off their words, a header that counts only what is taken, the last of
duplicates, and a file that is taken for what its name says.
"""

import bz2
import gzip
import io
import json
import lzma
import pickle
import re
import struct
import tarfile
import zipfile

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from dptext_spark.cli import main
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import BundleError
from dptext_spark.jobs import embedding as job
from dptext_spark.options import EmbeddingOptions

PLAIN = [f"w{row}" for row in range(1, 31)]


def among(*odd):
    """Thirty words with odd ones in rows 11 and on."""
    words = [*PLAIN[:10], *odd, *PLAIN[10:]]
    return [word if isinstance(word, bytes) else word.encode() for word in words]


def text(words, *, header=False, end=b"\n", **odd):
    """Each word's first number is its row, so that a vector of another word is seen, but for ``odd``."""
    rows = [
        w + b" " + odd.get(w.decode("latin-1"), b"%d 0.25" % at) + end
        for at, w in enumerate(words, 1)
    ]
    return b"%d 2\n" % len(rows) * header + b"".join(rows)


def binary(words, end=b""):
    rows = [word + b" " + struct.pack("<ff", at, 0.25) + end for at, word in enumerate(words, 1)]
    return b"%d 2\n" % len(rows) + b"".join(rows)


def zipped(**files):
    with zipfile.ZipFile(packed := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def tarred(content):
    with tarfile.open(fileobj=(packed := io.BytesIO()), mode="w:gz") as archive:
        member = tarfile.TarInfo("words.txt")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def written(write, *given):
    write(*given, file := io.BytesIO())
    return file.getvalue()


def made(folder, name, content, **options):
    """Run the job: words with the row that their vector says, what was left out, and what is said."""
    (folder / name).write_bytes(content)
    given = {"source": str(folder / name), "output": str(folder / "bundle"), **options}
    given = {option.replace("_", "-"): value for option, value in given.items()}
    report = job.run(EmbeddingOptions.of(given))
    embedding = Embedding.open(folder / "bundle")
    rows = dict(
        zip(embedding.words.to_pylist(), embedding.vectors[:, 0].round().astype(int), strict=True)
    )
    return rows, report.facts["left_out"], report.text


EMPTY, CONTROL, DUPLICATE = (
    "the word is empty or blank",
    "the word holds a control character",
    "the word is a duplicate",
)
UTF8, PREFIX, ZERO = (
    "the word is not valid UTF-8",
    "the word does not begin with the prefix",
    "the vector is zero",
)
OUTSIDE = "the point is not inside the Poincaré ball, up to a radius of 14.6"
NAN = "the vector holds NaN, an infinity or a number too large"
NUMBERBATCH = [b"/c/de/hund", *(b"/c/en/" + word for word in among()), b"/c/fr/chien", b"/c/en/"]
LONG = [f"a{row}" for row in range(1, 9001)]
LONG[9], LONG[4999], LONG[8499] = "", "a5", ""
NEL, NBSP = "\u0085", "\u00a0"


def case(situation, name, content, *expected, source="own trial", **options):
    """One situation; ``source`` is where somebody met it."""
    assert source
    return pytest.param(name, content, *expected, options, id=situation)


READ = [
    case("GloVe 6B", "glove.6B.txt", text(among("naïve", "W20")), {"naïve": 11, "W20": 12}, {}),
    case("GloVe Twitter has U+0085", "glove.twitter.txt", text(among(NEL)), {}, {EMPTY: [11]},
         source="stanfordnlp/GloVe #159"),
    case("GloVe 840B has words with spaces", "glove.840B.txt", text(among(". . .", "at name@domain.com")),
         {". . .": 11, "at name@domain.com": 12}, {}, source="stanfordnlp/GloVe #191"),
    case("GloVe 840B has duplicates", "glove.840B.txt", text(among("w3", "x")), {"x": 12},
         {DUPLICATE: [11]}, source="maciejkula/glove-python #48"),
    case("GloVe 840B has broken letters", "glove.840B.txt", text(among(b"\xff-1", "x")), {"x": 12},
         {UTF8: [11]}, source="clulab/eidos #388"),
    case("fastText .vec has a tab for a word, and its header counts it", "crawl.vec",
         text(among("\t", "x"), header=True, end=b" \n"), {"x": 12}, {EMPTY: [12]},
         source="facebookresearch/fastText #505"),
    case("fastText .vec has a zero vector", "f.vec", text(among("</s>"), header=True, **{"</s>": b"0 -0.0"}),
         {}, {ZERO: [12]}, source="facebookresearch/fastText #343"),
    case("NaN vectors, of one word twice", "g.txt", text(among("bad", "bad"), bad=b"nan nan"), {},
         {NAN: [11, 12]}, source="facebookresearch/fastText #687"),
    case("word2vec .bin has a word that is cut in a letter", "w.bin", binary(among(b"caf\xc3", "x")),
         {"x": 12}, {UTF8: [11]}, source="piskvorky/gensim #567"),
    case("word2vec .bin with a line break after each row", "w.bin", binary(among("w2", "x"), b"\n"),
         {"x": 12}, {DUPLICATE: [11]}),
    case("Numberbatch, one language", "n.txt.gz", gzip.compress(text(NUMBERBATCH, header=True)),
         {word: row for row, word in enumerate(PLAIN, 2)}, {PREFIX: [2, 33, 34]}, word_prefix="/c/en/",
         source="piskvorky/gensim #2565"),
    case("Numberbatch, nearly all words of other languages", "n.txt",
         text([*(b"/c/xx/%d" % row for row in range(99)), b"/c/en/a", b"/c/en/b"]), {"a": 100, "b": 101},
         {PREFIX: [1, 2, 3, 4, 5]}, word_prefix="/c/en/"),
    case("blanks around words", "g.txt", text(among(f"{NBSP}x\t", NBSP, f"w4{NBSP}")), {"x": 11},
         {EMPTY: [12], DUPLICATE: [13]}),
    case("the first of duplicates has no vector, so the second stays", "g.txt",
         text(among("x", "a\0b")).replace(b"w7 7", b"x nan"), {"x": 11}, {NAN: [7], CONTROL: [12]}),
    case("a point outside the ball, one odd row of three", "p.txt",
         text([b"a", b"b", b"far"], a=b"0 0", b=b"0 .5", far=b"1 1"), {"a": 0, "b": 0}, {OUTSIDE: [3]},
         geometry="poincare"),
    case("odd rows in several blocks", "g.txt", text(word.encode() for word in LONG),
         {word: LONG.index(word) + 1 for word in LONG if word}, {EMPTY: [10, 8500], DUPLICATE: [5000]}),
    case("text named .bin", "glove.bin", text(among("x"), header=True), {"x": 11}, {}),
    case("word2vec binary without a name that says so", "vectors", binary(among("x")), {"x": 11}, {}),
    case("gzip under another name", "glove.txt", gzip.compress(text(among("x"))), {"x": 11}, {}),
    case("text that a browser unpacked", "g.txt.gz", text(among("x")), {"x": 11}, {}),
    case("bzip2", "enwiki.txt.bz2", bz2.compress(text(among("x"))), {"x": 11}, {},
         source="wikipedia2vec/wikipedia2vec #20"),
    case("xz", "w.bin.xz", lzma.compress(binary(among("x"))), {"x": 11}, {}),
    case("a zip of one file", "g.zip", zipped(**{"__MACOSX/._g": b"-", "g.txt": text(among("x"))}), {"x": 11},
         {}),
    case("no last line break", "g.txt", text(among("x"), header=True)[:-1], {"x": 11}, {}),
    case("empty lines at the end", "g.txt", text(among("x")) + b"\n\r\n", {"x": 11}, {}),
    case("a shorter last number in a container, which says where it ends", "g.gz",
         gzip.compress(text(among("x"))[:-2]), {"x": 11}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "more", "left_out", "options"), READ)
def test_is_read(tmp_path, name, content, more, left_out, options):
    words, facts, said = made(tmp_path, name, content, **options)
    assert {word: words[word] for word in more} == more
    assert {each["reason"]: each["first"] for each in facts} == left_out
    plain = [row for word, row in words.items() if word in PLAIN]
    assert plain == sorted({*plain}) and len(plain) + len({*more} - {*PLAIN}) == len(words)
    for each in facts:
        assert f"Left out: {each['rows']} row" in said and each["rows"] >= len(each["first"])
    again = {"overwrite": True, **options}
    if wrong := [reason for reason in left_out if reason != PREFIX]:
        with pytest.raises(BundleError, match="|".join(wrong)):
            made(tmp_path, name, content, strict=True, **again)
        with pytest.warns(UserWarning, match=wrong[0]):  # who calls the function sees no report
            build_embedding(tmp_path / name, tmp_path / "bundle", **again)
    else:
        made(tmp_path, name, content, strict=True, **again)


PICKLED = pickle.dumps({"vectors": 1}, protocol=4)
REFUSED = [
    case("fastText .bin", "cc.en.bin.gz", gzip.compress(b"\xba\x16O/\x0c\0\0\0"),
         "a fastText model. Take its .vec", source="facebookresearch/fastText #171"),
    case("gensim .kv", "words.kv", PICKLED, r"KeyedVectors.load\(PATH\).save_word2vec_format"),
    case("a pickle in bzip2", "enwiki.pkl.bz2", bz2.compress(PICKLED), "a pickle",
         source="wikipedia2vec/wikipedia2vec #20"),
    case("a Git LFS pointer", "glove.bin", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
         "git lfs pull", source="arunsupe/semantic-grep #11"),
    case("a web page", "glove.txt", b"\n<!DOCTYPE html>\n<html>404", "a web page. Download the file"),
    case("UTF-16", "g.txt", text(among()).decode().encode("utf-16"), "iconv -f UTF-16"),
    case("HDF5", "g.h5", b"\x89HDF\r\n\x1a\n", "HDF5.*Write it as text"),
    case("safetensors", "g.safetensors", struct.pack("<Q", 9) + b'{"a": 1}', "safetensors. Save the matrix"),
    case("Parquet", "g.parquet", written(pq.write_table, pa.table({"word": ["a"]})), "Parquet"),
    case("Feather", "g.feather", written(feather.write_feather, pa.table({"word": ["a"]})), "Arrow"),
    case("Magnitude", "g.magnitude", b"SQLite format 3\0", "SQLite"),
    case("zstd", "g.txt.zst", b"\x28\xb5\x2f\xfd\0", "zstd.*Decompress it"),
    case("a tar in gzip", "g.tgz", tarred(text(among())), "a tar archive. Unpack it"),
    case("a zip of several files", "glove.6B.zip", zipped(**{"50d.txt": b"a 1", "100d.txt": b"a 1"}),
         "Got: 50d.txt, 100d.txt. Unpack it and take one"),
    case(".npz", "g.npz", zipped(**{"arr_0.npy": b"\x93NUMPY"}), "not a complete .npy file"),
    case("a zip that is cut", "g.zip", zipped(**{"g.txt": text(among())})[:-9], "line 1: the file is cut"),
    case("bzip2 that is cut", "g.bz2", bz2.compress(text(among()))[:-9], "line 1: the file is cut"),
    case("a last number that is cut", "g.txt", text(among())[:-2], "line 30: the file is cut.*line break"),
    case("Numberbatch without a language", "n.txt", text(b"/c/en/" + word for word in among()),
         "--word-prefix /c/en/", source="piskvorky/gensim #2565"),
    case("no word of that language", "n.txt", text(among()), "No word begins with the prefix",
         word_prefix="/c/eo/"),
    case("a row was taken out by hand, and the header counts it", "g.vec",
         text(among(NEL), header=True).replace(b"\xc2\x85 11 0.25\n", b""),
         "31 rows, as line 1 says.*Got: 30", source="piskvorky/gensim #391"),
    case("odd rows that the header does not count", "g.vec",
         text(among(NEL), header=True).replace(b"31 2", b"30 2"), "30 rows, as line 1 says.*Got: 31"),
    case("Latin-1 text", "g.txt", text(word + b"\xe9" for word in among()),
         r"a tenth of its 30 rows.*30 rows, the word is not valid UTF-8 \(lines 1, 2, 3, 4, 5 and 25 more\)",
         source="piskvorky/gensim #567"),
    case("more than a tenth", "g.txt", text(among(*PLAIN[:4])), "more than a tenth of its 34 rows"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message", "options"), REFUSED)
def test_is_refused_with_what_to_do(tmp_path, name, content, message, options):
    with pytest.raises(BundleError, match=message) as caught:
        made(tmp_path, name, content, **options)
    assert (
        re.search(rf"{re.escape(name)}|prefix", str(caught.value))
        and not (tmp_path / "bundle").exists()
    )


def test_the_embedding_command(tmp_path):
    """Says which lines of its lists match; rejects a message with words of them."""
    source, denied, config = (
        tmp_path / name for name in ("source.txt", "denied.txt", "options.toml")
    )
    source.write_text("alpha 0 1\nbeta 1 0\ngamma 1 1\n")
    denied.write_text("Gamma\n\ndelta,\n")
    config.write_text(f'source = "{source}"\nrelease-words = 2\n')

    def embedding(output, *arguments):
        given = ["embedding", *map(str, arguments), "--output", str(tmp_path / output)]
        return CliRunner().invoke(main, given)

    result = embedding("bundle", "--config", config, "--normalize", "unit")
    expected = build_embedding(source, tmp_path / "again", release_words=2, normalize="unit")
    assert result.exit_code == 0 and expected.fingerprint[:16] in result.output, result.output
    assert Embedding.open(tmp_path / "bundle").fingerprint == expected.fingerprint
    result = embedding("new", source, "--format", "txt")
    assert result.exit_code == 2 and re.search("word2vec-binary, npy.*Got: txt", result.output)
    result = embedding("one", source, "--never-output", denied, "--json")
    assert "delta" not in result.output
    found = {"entries": 2, "matched": 1, "unmatched_lines": [3]}
    assert json.loads(result.stdout)["word_lists"] == {"--never-output": found}


def test_words_that_look_like_identifiers_are_counted(tmp_path):
    """Rejects a count of all words of the bundle, or of words that are never output anyway."""
    names = ["the", "1984", "555-1234", "www.example.com", "a4", "2001"]
    source = tmp_path / "numbers.txt"
    source.write_text("".join(f"{name} {place + 1}.0 1.0\n" for place, name in enumerate(names)))
    options = {"source": source, "output": tmp_path / "bundle", "release-words": 5}
    report = job.run(EmbeddingOptions.of(options))
    assert report.facts["embedding"]["withheld_words"] == 3
    assert "look like identifiers or numbers: 3; releases do not output them" in report.text
