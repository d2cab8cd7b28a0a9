"""TextPrivatizer: a stage of a pipeline that is saved and loaded, but for its key."""

import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import SQLTransformer

from dptext_spark import Mahalanobis, RowBudget, TextPolicy, TextPrivatizer, privatize
from dptext_spark.errors import ConfigError
from tests.helpers.tables import by_id, texts
from tests.helpers.worlds import KEY, LABEL

pytestmark = pytest.mark.spark

MECHANISM = Mahalanobis(epsilon=40.0, lambda_=0.5)


@pytest.fixture(scope="module")
def frame(spark):
    return spark.createDataFrame(list(enumerate(texts(20))), "id int, text string")


@pytest.fixture
def parameters(ring):
    given = {"embedding": ring.path, "mechanism": MECHANISM, "id": "id", "text": "text"}
    given |= {"keep": ["id"], "name": LABEL, "policy": TextPolicy(numbers="words")}
    return given | {"row_budget": RowBudget(loss=30.0, within=0.2)}


def test_a_pipeline_with_it_comes_back_from_its_folder_without_the_key(
    frame, parameters, key_file, tmp_path
):
    expected = by_id(privatize(frame, **parameters, key=KEY))
    stage = TextPrivatizer(**parameters, key=key_file)
    after = SQLTransformer(statement="SELECT id, concat(text, '.') AS text FROM __THIS__")
    model = Pipeline(stages=[stage, after]).fit(frame)
    dotted = {row: f"{text}." for row, text in expected.items()}
    for name in ("row_budget", "policy"):
        assert expected != by_id(privatize(frame, **parameters | {name: None}, key=KEY))
    assert by_id(model.transform(frame)) == dotted

    model.write().overwrite().save(str(tmp_path / "model"))
    loaded = PipelineModel.load(str(tmp_path / "model"))
    assert isinstance(loaded.stages[0], TextPrivatizer)
    assert loaded.stages[0].uid == stage.uid
    with pytest.raises(ConfigError, match="does nothing without a key that is kept"):
        loaded.transform(frame)
    loaded.stages[0].key = str(key_file)
    assert by_id(loaded.transform(frame)) == dotted

    with pytest.raises(ConfigError, match="by name"):
        TextPrivatizer("text")
    content = b"".join(
        file.read_bytes() for file in (tmp_path / "model").rglob("*") if file.is_file()
    )
    assert str(parameters["embedding"]).encode() in content and b"mahalanobis" in content
    for secret in (KEY.secret, KEY.secret.hex().encode(), str(key_file).encode(), b"key"):
        assert secret not in content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keys": "k"}, r"by name\. Allowed: .*trust_id\. Got: keys"),
        ({"mechanism": "laplace"}, "epsilon is missing"),
        ({"mechanism": 3}, r"such as Laplace\(epsilon=8\); got int"),
        ({"policy": "drop"}, r"such as TextPolicy\(oov='drop'\)"),
        ({"text": 3}, "A parameter of TextPrivatizer has a wrong type"),
        ({"key": "no/key"}, "The key file no/key cannot be read"),
        ({"mechanism": None, "id": None}, "lacks the parameters mechanism, id"),
    ],
)
def test_wrong_parameters_are_refused(frame, parameters, key_file, change, message):
    given = {**parameters, "key": key_file, **change}
    with pytest.raises(ConfigError, match=message):
        TextPrivatizer(**{n: value for n, value in given.items() if value is not None}).transform(
            frame
        )
