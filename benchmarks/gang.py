"""How long a gang takes to run and to be gone, beside a single pod of the same runs: on whatever cluster a platform drives.

    KUBECONFIG=<an administrator's> python benchmarks/gang.py [PIPELINE] [--runs 10]

The person must be logged in (`trainyard login`) to the platform that drives that cluster. Pods are watched, not polled: each moment is when
the API server said it. The baseline is the step `plan`, one pod of the same image, once in each run, so load of the machine is in both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kubernetes import client, config, watch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "plugins"))

from trainyard.contract import names

BASELINE = "plan"
SETTLE_S = 15.0
"""After a run's end: its last pods' deletions must have been told."""


@dataclass
class Pod:
    """Moments (seconds of the monotonic clock) in a pod's life; 0 is never."""

    role: str
    step: str
    created: float = 0.0
    running: float = 0.0
    ended: float = 0.0
    gone: float = 0.0


@dataclass
class Watcher(threading.Thread):
    """All pods of ours, from now on."""

    core: client.CoreV1Api
    pods: dict[str, Pod] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        selector = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
        while True:
            for event in watch.Watch().stream(self.core.list_pod_for_all_namespaces, label_selector=selector, timeout_seconds=600):
                self._note(event["type"], event["object"], time.monotonic())

    def _note(self, kind: str, pod: client.V1Pod, now: float) -> None:
        labels = pod.metadata.labels
        one = self.pods.setdefault(pod.metadata.uid, Pod(labels.get(names.LABEL_ROLE, ""), labels.get(names.LABEL_STEP, ""), created=now))
        if pod.status.phase == "Running":
            one.running = one.running or now
        if pod.status.phase in ("Succeeded", "Failed"):
            one.ended = one.ended or now
        if kind == "DELETED":
            one.gone = now


def measure(pods: list[Pod]) -> dict[str, float]:
    """Seconds of one run."""
    gang = [pod for pod in pods if pod.role]
    (chief,) = [pod for pod in gang if pod.role == names.ROLE_CHIEF]
    servers = [pod for pod in gang if pod.role == names.ROLE_PS]
    (single,) = [pod for pod in pods if pod.step == BASELINE]
    return {
        "one pod: created to running": single.running - single.created,
        "gang: created to all running": max(pod.running for pod in gang) - min(pod.created for pod in gang),
        "chief's end to no PS": max(pod.ended or pod.gone for pod in servers) - chief.ended,
        "chief's end to no pods": max(pod.gone for pod in gang) - chief.ended,
    }


def runs(pipeline: str, count: int, watcher: Watcher) -> Iterator[dict[str, float]]:
    """Trains one after the other."""
    for number in range(1, count + 1):
        before = set(watcher.pods)
        command = [sys.executable, "-c", "from trainyard.cli.main import app; app()", "run", pipeline, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"run {number} of {pipeline} ended with {done.returncode}:\n{done.stderr}{done.stdout[-1000:]}")
        time.sleep(SETTLE_S)
        seconds = measure([pod for uid, pod in watcher.pods.items() if uid not in before])
        end = json.loads(done.stdout.splitlines()[-1])
        seconds["the whole run, from its begin to its end"] = float(end["seconds"])
        print(f"run {number}: " + ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items()), file=sys.stderr, flush=True)
        yield seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("pipeline", nargs="?", default="digits-mlp")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    config.load_kube_config()
    watcher = Watcher(client.CoreV1Api())
    watcher.start()
    time.sleep(2)
    measured = list(runs(options.pipeline, options.runs, watcher))
    rows = {name: sorted(one[name] for one in measured) for name in measured[0]}
    baseline = statistics.median(rows["one pod: created to running"])
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{'':<42}{'p50':>8}{'max':>8}{'÷ one pod':>11}")
    for name, values in rows.items():
        print(f"{name:<42}{statistics.median(values):>7.2f}s{max(values):>7.2f}s{statistics.median(values) / baseline:>11.2f}")


if __name__ == "__main__":
    main()
