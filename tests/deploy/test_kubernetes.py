"""The Kubernetes manifests: valid by their schemas, and right for what they start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from penstock.cli.app import root
from penstock.http.app import service

MANIFESTS = Path(__file__).parents[2] / "deploy" / "kubernetes"


def documents() -> Iterator[dict[str, Any]]:
    for path in sorted(MANIFESTS.glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text(encoding="utf-8"))


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """The pods of everything that starts some, by the name of what starts them."""
    for one in documents():
        spec = one.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template:
            yield one["metadata"]["name"], template["spec"]


@pytest.mark.shows("O09")
def test_the_schemas_of_kubernetes_accept_them() -> None:
    kinds = set()
    for one in documents():
        if one["kind"] != "Kustomization":
            kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)
        kinds.add(one["kind"])
    assert {"Deployment", "CronJob", "Job", "PodDisruptionBudget", "Secret", "Service"} <= kinds


def test_the_kustomization_names_existing_files() -> None:
    named = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    assert all((MANIFESTS / name).is_file() for name in named)
    there = {path.name for path in MANIFESTS.glob("*.yaml")}
    assert there - {*named} == {"kustomization.yaml", "migrate.yaml"}  # the schema comes before the rest


def test_every_pod_runs_a_command_that_exists_with_few_rights() -> None:
    import typer

    commands = typer.main.get_command(root).commands  # type: ignore[attr-defined]
    found = {}
    for name, pod in pods():
        (container,) = pod["containers"]
        verb, *rest = container["args"]
        found[name] = verb
        options = {one for parameter in commands[verb].params for one in parameter.opts}
        assert {one for one in rest if one.startswith("--")} <= options, (name, container["args"])
        assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] and rights["capabilities"] == {"drop": ["ALL"]}
        assert not rights["allowPrivilegeEscalation"] and container["resources"]["limits"]["memory"]
    assert {"serve", "run", "worker", "archive", "init"} == {*found.values()}


def test_secrets_exist_and_only_owners_work_gets_the_owners() -> None:
    secrets = {one["metadata"]["name"]: one for one in documents() if one["kind"] == "Secret"}
    for name, pod in pods():
        (source,) = pod["containers"][0]["envFrom"]
        wanted = "penstock-owner" if name in ("penstock-archive", "penstock-migrate") else "penstock-worker"
        assert source["secretRef"]["name"] == wanted and "PENSTOCK_URL" in secrets[wanted]["stringData"]


def test_probes_are_routes_and_pods_have_time_to_stop() -> None:
    from typing import cast

    from penstock.core.limits import TIMEOUT_SECONDS
    from penstock.http.auth import NoAuth
    from penstock.log.log import Log

    routes = service(cast(Log, None), NoAuth()).openapi()["paths"]
    by_name = dict(pods())
    (serve,) = by_name["penstock-serve"]["containers"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert serve[probe]["httpGet"]["path"] in routes
        assert serve[probe]["httpGet"]["port"] == serve["ports"][0]["name"]
    assert str(serve["ports"][0]["containerPort"]) in serve["args"]
    assert by_name["penstock-serve"]["terminationGracePeriodSeconds"] >= 5 + 10
    for name in ("penstock-handlers", "penstock-worker"):
        assert by_name[name]["terminationGracePeriodSeconds"] >= TIMEOUT_SECONDS + 10


def test_every_deployment_survives_a_drained_node() -> None:
    there = list(documents())
    budgets = [one["spec"]["selector"] for one in there if one["kind"] == "PodDisruptionBudget"]
    for one in there:
        if one["kind"] == "Deployment":
            assert one["spec"]["selector"] in budgets and one["spec"]["replicas"] >= 2
            assert one["spec"]["selector"]["matchLabels"] == one["spec"]["template"]["metadata"]["labels"]
