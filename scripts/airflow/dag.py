"""A DAG to copy: each day's partition of a table is sanitized when the day is over.

    locate_evaluation -> bundle_changed -> [evaluate] -> check_risk -> privatize -> check_report

Put this file into Airflow's folder of DAGs and adjust the parameters and ``TABLE``. It needs
Airflow 3, the provider apache-airflow-providers-apache-spark, ``spark-submit`` on the workers' PATH
and the connection ``spark_default``. The package itself need not be in Airflow's environment.

Every task may be run again. The same logical date reads the same partition under the same key and
label, so it gives the same bytes and costs nothing in the ledger, as long as the partition is the
same to the byte; it replaces that partition and no other. Rows that changed meanwhile get fresh
noise and cost ε once more for all of their words, until the budget refuses them, and anyone with
both outputs sees which ones they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, CronDataIntervalTimetable, ObjectStoragePath, Param, dag, task
from airflow.sdk.exceptions import AirflowFailException

# What is measured must be what is released: both jobs get these.
MECHANISM = ["--embedding", "{{ params.bundle }}", "--mechanism", "{{ params.mechanism }}"]
MECHANISM += ["--epsilon", "{{ params.epsilon }}"]
# The ledger takes equal ids of any day for one row: they are unique over all days.
TABLE = ["--text", "text", "--id", "id", "--keep", "id", "--keep", "intent"]
PARTITION = "dt={{ ds }}"
INPUT = ["--input", f"{{{{ params.input }}}}/{PARTITION}"]
EVALUATION = "{{ ti.xcom_pull('locate_evaluation') }}"
EVALUATE = ["--text", "text", "--id", "id", "--sample", "{{ params.evaluated_rows }}"]
EVALUATE += ["--target", "{{ params.target }}", "--output", EVALUATION, "--overwrite"]
PLACES = [*INPUT, "--output", f"{{{{ params.output }}}}/{PARTITION}"]
# Not inside the table: it is shared, and its readers would take them for parts of it.
PLACES += ["--reports", f"{{{{ params.reports }}}}/{PARTITION}"]
# The name is the label of a day's noise.
RELEASE = ["--key-file", "{{ params.key_file }}", "--name", "{{ params.table }} {{ ds }}"]
RELEASE += ["--ledger", "{{ params.ledger }}", "--budget", "{{ params.budget }}"]
RELEASE += ["--mode", "overwrite"]

SANITIZED = Asset("dptext_sanitized")
"""DAGs scheduled on this start for days that passed their check, and for no others."""


@dag(
    # Not "@daily": the run of a day must start when the day is over, and bear its date.
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    params={
        "jobs": Param(
            "/opt/dptext/jobs", type="string", description="folder of the package's jobs"
        ),
        "properties": Param(
            "/opt/dptext/conf/spark-defaults.conf", type="string", description="Spark's settings"
        ),
        "input": Param(
            "/data/messages", type="string", description="table with folders dt=YYYY-MM-DD"
        ),
        "output": Param("/data/messages_sanitized", type="string", description="table to write"),
        "reports": Param(
            "/data/messages_reports", type="string", description="each day's, some private"
        ),
        "bundle": Param(
            "/opt/dptext/glove-50d", type="string", description="made by dptext embedding"
        ),
        "evaluations": Param(
            "/data/dptext_evaluations", type="string", description="private: facts about rows"
        ),
        "evaluated_rows": Param(5000, type="integer", description="how many rows are attacked"),
        "target": Param(
            "recovery(top1) <= 0.35", type="string", description="what attackers may get back"
        ),
        "key_file": Param("/etc/dptext/release.key", type="string", description="mode 0600"),
        "table": Param(
            "messages", type="string", minLength=1, description="its name: no other has it here"
        ),
        "ledger": Param(
            "/data/messages_ledger", type="string", description="what was released before"
        ),
        "budget": Param(
            20.0, type="number", exclusiveMinimum=0, description="ε of a row over all releases"
        ),
        "mechanism": Param("laplace", type="string"),
        "epsilon": Param(3.5, type="number", exclusiveMinimum=0),
        "max_unknown": Param(0.05, type="number", description="share of words the bundle may lack"),
    },
)
def dptext_privatize() -> None:
    """Attack a day's rows when the bundle changed, sanitize the partition, check the report."""

    @task
    def locate_evaluation(params: Mapping[str, Any]) -> str:
        """Return the evaluation's folder, named by what it depends on: a new bundle has none."""
        bundle = _json(params["bundle"], "manifest.json")["fingerprint"][:16]
        target = sha256(params["target"].encode()).hexdigest()[:8]
        setting = f"{params['mechanism']}-{params['epsilon']:g}-{target}"
        return f"{params['evaluations']}/{bundle}-{setting}"

    @task.branch
    def bundle_changed(place: str) -> str:
        """Evaluate unless a finished evaluation is there; one that was cut off begins anew."""
        if (ObjectStoragePath(place) / "evaluation.json").exists():
            return "check_risk"
        return "evaluate"

    @task(trigger_rule="none_failed", retries=0)
    def check_risk(place: str) -> None:
        """Stop before anything is released where attackers get back more than the target allows."""
        fault = _fault(_json(place, "evaluation.json")["target"])
        if fault:
            raise AirflowFailException(fault)

    @task(outlets=[SANITIZED], retries=0)
    def check_report(params: Mapping[str, Any], ds: str) -> None:
        """Fail the run of a day whose report is out of bounds; its partition stays."""
        most = params["max_unknown"]
        report = _json(params["reports"], f"dt={ds}/private/report.json")
        faults = []
        for column, counts in report["columns"].items():
            unknown = counts["out_of_vocabulary"]["tokens"] / max(counts["tokens"], 1)
            if unknown > most:
                faults.append(f"unknown words of {column}: {unknown:.3f}, max_unknown {most}")
        if faults:
            raise AirflowFailException("; ".join(faults))

    evaluate = SparkSubmitOperator(
        task_id="evaluate",
        application="{{ params.jobs }}/evaluate.py",
        properties_file="{{ params.properties }}",
        application_args=[*MECHANISM, *INPUT, *EVALUATE],
    )
    privatize = SparkSubmitOperator(
        task_id="privatize",
        application="{{ params.jobs }}/privatize.py",
        properties_file="{{ params.properties }}",
        application_args=[*MECHANISM, *TABLE, *PLACES, *RELEASE],
    )
    place = locate_evaluation()
    checked = check_risk(place)
    bundle_changed(place) >> [evaluate, checked]
    evaluate >> checked >> privatize >> check_report()


def _fault(target: Mapping[str, Any]) -> str:
    """Return why a target is not met by the setting, on rows of the choice and of the check."""
    if target["options"] is None:
        measured = (target["closest"] or {}).get("measured")
        reason = target["remark"] or f"this setting misses it (measured {measured})"
        return f"{target['target']}: {reason}"
    if not target["checked_on"]["met"]:
        return f"{target['target']}: missed on rows of the check"
    return ""


def _json(folder: str, name: str) -> Any:
    """Read a file of JSON."""
    return json.loads((ObjectStoragePath(folder) / name).read_text())


dptext_privatize()
