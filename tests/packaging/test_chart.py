"""The chart renders what Kubernetes accepts, refuses what would lose work, and holds no secret."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from outbox_relay.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "outbox-relay"
TOOLS = ROOT / "build" / "tools"
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
CASES = sorted(path.stem for path in (CHART / "ci").glob("*.yaml"))
NOT_KUBERNETES_OWN = {"PodMonitor"}

# The first run builds helm from its module, which takes minutes; then it is cached under build/.
pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module")
def helm() -> str:
    """The path of helm 3: the one in build/tools, else one on PATH, else built there with Go."""
    built = TOOLS / "helm"
    if built.exists():
        return str(built)
    if given := shutil.which("helm"):
        return given
    if not shutil.which("go"):
        pytest.skip("neither helm nor Go is installed")
    TOOLS.mkdir(parents=True, exist_ok=True)
    subprocess.run(["nice", "go", "install", HELM], env={**os.environ, "GOBIN": str(TOOLS)}, check=True)
    return str(built)


class Chart:
    """Renders the chart with a values file from ci/ and single values."""

    def __init__(self, helm: str) -> None:
        self.helm = helm

    def run(self, verb: str, case: str, *sets: str, version: str = "1.37") -> subprocess.CompletedProcess[str]:
        name = ["demo"] if verb == "template" else []
        apis = ["--api-versions", "monitoring.coreos.com/v1"] if verb == "template" else ["--strict"]
        values = ["--values", str(CHART / "ci" / f"{case}.yaml"), *(part for s in sets for part in ("--set-json", s))]
        command = [self.helm, verb, *name, str(CHART), *values, *apis, "--kube-version", f"{version}.0"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def objects(self, case: str, *sets: str, version: str = "1.37") -> list[dict[str, Any]]:
        done = self.run("template", case, *sets, version=version)
        assert done.returncode == 0, done.stderr
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    def refusal(self, case: str, *sets: str, version: str = "1.37") -> str:
        done = self.run("template", case, *sets, version=version)
        assert done.returncode != 0, "helm accepted it"
        return done.stderr


@pytest.fixture
def chart(helm: str) -> Chart:
    return Chart(helm)


def one(objects: list[dict[str, Any]], kind: str, ending: str = "") -> dict[str, Any]:
    (found,) = (o for o in objects if o["kind"] == kind and o["metadata"]["name"].endswith(ending))
    return found


def pod_specs(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [o["spec"] if o["kind"] == "Pod" else o["spec"]["template"]["spec"] for o in objects
            if o["kind"] in {"Pod", "Job", "Deployment"}]  # fmt: skip


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*spec.get("initContainers", []), *spec["containers"]]


@pytest.mark.parametrize("case", CASES)
def test_helm_lint_is_clean(chart: Chart, case: str) -> None:
    done = chart.run("lint", case)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", ["1.30", "1.37"])
@pytest.mark.parametrize("case", CASES)
def test_every_object_is_valid_for_kubernetes(chart: Chart, case: str, version: str) -> None:
    objects = chart.objects(case, version=version)
    assert objects
    for item in objects:
        if item["kind"] not in NOT_KUBERNETES_OWN:
            kubernetes_validate.validate(item, version, strict=True)


def test_the_oldest_supported_kubernetes_accepts_the_defaults(chart: Chart) -> None:
    for item in chart.objects("minimal", version="1.25"):
        kubernetes_validate.validate(item, "1.25", strict=True)


@pytest.mark.parametrize("case", CASES)
def test_every_container_is_locked_down(chart: Chart, case: str) -> None:
    for spec in pod_specs(chart.objects(case)):
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] >= 1000
        for container in containers(spec):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("case", CASES)
def test_secrets_are_named_never_made(chart: Chart, case: str) -> None:
    objects = chart.objects(case)
    assert not [o for o in objects if o["kind"] == "Secret"]
    for spec in pod_specs(objects):
        for container in containers(spec):
            assert not [e for e in container["env"] if "DATABASE_URL" in e["name"] or "PASSWORD" in e["name"]]
            assert [source for source in container["envFrom"] if "secretRef" in source]


def test_each_program_gets_its_own_role(chart: Chart) -> None:
    objects = chart.objects("everything")
    for component in ("relay", "reconciler"):
        (container,) = one(objects, "Deployment", f"-{component}")["spec"]["template"]["spec"]["containers"]
        assert container["envFrom"][0] == {"secretRef": {"name": f"outbox-{component}-database"}}
    job = one(objects, "Job")["spec"]["template"]["spec"]
    assert {c["envFrom"][0]["secretRef"]["name"] for c in containers(job)} == {"outbox-owner-database"}


def test_a_secret_written_into_an_account_is_refused(chart: Chart) -> None:
    account = json.dumps([{"provider": "resend", "credentials": {"api_key": {"value": "re_123"}}}])
    assert "credentials" in chart.refusal("minimal", f"providers.accounts={account}")


def test_the_grace_period_outlasts_every_request_in_flight(chart: Chart) -> None:
    for case in CASES:
        for item in chart.objects(case):
            if item["kind"] == "Deployment":
                spec = item["spec"]["template"]["spec"]
                env = {e["name"]: e.get("value") for e in spec["containers"][0]["env"]}
                assert spec["terminationGracePeriodSeconds"] > float(env["OUTBOX_PROVIDER_DEADLINE_S"])
                assert spec["terminationGracePeriodSeconds"] > float(env["OUTBOX_LEASE_S"])


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("terminationGracePeriodSeconds=11", "delivery_unknown"),
        ("timing.leaseSeconds=10", "must exceed timing.providerDeadlineSeconds"),
        ("timing.leaseSecond=40", "additional properties 'leaseSecond' not allowed"),
        ("providers.accounts=[]", "has nothing to do"),
        ('wakeups="kafka"', "kafka.bootstrapServers is needed"),
        ('mode="daemon"', "mode"),
        ("podSecurityContext.runAsNonRoot=false", "runAsNonRoot"),
        ('image.digest="latest"', "digest"),
    ],
)
def test_values_that_cannot_work_are_refused(chart: Chart, setting: str, reason: str) -> None:
    assert reason in chart.refusal("minimal", setting)


def test_a_pre_stop_sleep_is_refused_where_kubernetes_has_none(chart: Chart) -> None:
    assert "1.30" in chart.refusal("minimal", "preStopSeconds=5", version="1.29")


def test_probes_ask_liveness_of_the_program_and_readiness_of_its_needs(chart: Chart) -> None:
    (container,) = one(chart.objects("minimal"), "Deployment", "-relay")["spec"]["template"]["spec"]["containers"]
    paths = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
    assert paths == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}


def test_replicas_are_left_to_an_autoscaler_when_null(chart: Chart) -> None:
    objects = chart.objects("minimal", "relay.replicas=null")
    assert "replicas" not in one(objects, "Deployment", "-relay")["spec"]
    assert one(objects, "PodDisruptionBudget", "-relay")


def test_one_replica_has_no_disruption_budget(chart: Chart) -> None:
    objects = chart.objects("minimal", "relay.replicas=1")
    assert not [o for o in objects if o["kind"] == "PodDisruptionBudget"]


def test_a_change_of_accounts_restarts_the_pods(chart: Chart) -> None:
    def checksum(*sets: str) -> str:
        template = one(chart.objects("minimal", *sets), "Deployment", "-relay")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    assert checksum() != checksum('providers.accounts=[{"provider": "resend"}]')


def test_without_kafka_no_kafka_setting_is_left(chart: Chart) -> None:
    (container,) = one(chart.objects("minimal"), "Deployment", "-relay")["spec"]["template"]["spec"]["containers"]
    assert not [e["name"] for e in container["env"] if "KAFKA" in e["name"]]


@pytest.mark.parametrize(("case", "wakeups"), [("minimal", "ledger"), ("sidecar", "ledger"), ("everything", "kafka")])
def test_helm_test_asks_the_doctor_what_its_secrets_allow(chart: Chart, case: str, wakeups: str) -> None:
    (container,) = one(chart.objects(case), "Pod", "-doctor")["spec"]["containers"]
    env = {e["name"]: e.get("value") for e in container["env"]}
    assert container["command"] == ["outbox", "doctor", "--basic"]
    assert env["OUTBOX_WAKEUPS"] == wakeups
    assert ("OUTBOX_CONNECT_URL" in env) == (wakeups == "kafka")


def test_every_setting_that_the_chart_gives_exists(chart: Chart) -> None:
    known = {f"OUTBOX_{field.upper()}" for field in Settings.model_fields}
    for case in CASES:
        for spec in pod_specs(chart.objects(case)):
            for container in containers(spec):
                assert {e["name"] for e in container["env"] if e["name"].startswith("OUTBOX_")} <= known


def test_sidecar_mode_keeps_the_reconciler_a_deployment(chart: Chart) -> None:
    objects = chart.objects("sidecar")
    assert [o["metadata"]["name"] for o in objects if o["kind"] == "Deployment"] == ["demo-outbox-relay-reconciler"]


def test_the_sidecar_template_gives_a_valid_pod(helm: str, tmp_path: Path) -> None:
    """A chart of somebody else's that depends on ours and includes the relay in its own pod."""
    shutil.copytree(CHART, tmp_path / "charts" / "outbox-relay")
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: shop\nversion: 0.0.1\n")
    (tmp_path / "values.yaml").write_text(
        "outbox-relay: {mode: sidecar, wakeups: ledger, providers: {existingConfigMap: accounts}}\n"
    )
    (tmp_path / "templates" / "pod.yaml").write_text(SIDECAR_POD)
    command = [helm, "template", "shop", str(tmp_path), "--kube-version", "1.37.0", "-s", "templates/pod.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pod = yaml.safe_load(done.stdout)
    kubernetes_validate.validate(pod, "1.37", strict=True)
    (relay,) = pod["spec"]["initContainers"]
    assert relay["restartPolicy"] == "Always"
    assert relay["command"] == ["python3", "-m", "outbox_relay"]
    assert pod["spec"]["terminationGracePeriodSeconds"] == 40


SIDECAR_POD = """
{{- $sub := index .Subcharts "outbox-relay" }}
apiVersion: v1
kind: Pod
metadata: {name: shop}
spec:
  terminationGracePeriodSeconds: {{ include "outbox-relay.grace" $sub }}
  initContainers:
    - {{- include "outbox-relay.sidecar" $sub | nindent 6 }}
  containers:
    - {name: shop, image: shop}
  volumes:
    {{- include "outbox-relay.volumes" $sub | nindent 4 }}
"""
