"""How the platform bears many tenants: parse time of all DAGs beside that of one, memory of the DAG processor, time of `trainyard sync`.

    python benchmarks/scale.py [--tenants 50] [--pipelines 10] [--no-sync]

Nothing of a running platform is touched: configuration, Airflow's database, and (for sync) an embedded cluster are made in a folder of
this run's own. The baseline, one tenant with one pipeline, is measured in the same way, right before and after. Parsing is done as the DAG
processor does it: in a process that has Airflow imported already, one bundle folder after the other.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import yaml

CHECKOUT = Path(__file__).resolve().parents[1]
PARSE = """
import json, logging, sys, time
logging.disable(logging.CRITICAL)
from airflow.dag_processing.dagbag import DagBag
import airflow.providers.cncf.kubernetes.operators.pod, trainyard.pipelines.factory
found = []
for folder in sys.argv[1:]:
    began = time.process_time()  # of this process alone: load of the machine is in neither side of the ratio
    bag = DagBag(folder)
    found.append([time.process_time() - began, len(bag.dags), len(bag.import_errors)])
print("RESULT " + json.dumps(found))
"""


def make_config(folder: Path, tenants: int, pipelines: int) -> list[str]:
    """The samples' cluster and dataset with so many tenants of so many pipelines each; the tenants' names."""
    config = folder / "config"
    shutil.copytree(CHECKOUT / "config", config)
    tenant = yaml.safe_load((config / "tenants/vision.yaml").read_text())
    pipeline = yaml.safe_load((config / "pipelines/digits-mlp.yaml").read_text())
    for kind in ("tenants", "pipelines"):
        for file in (config / kind).glob("*.yaml"):
            file.unlink()
    names = [f"team-{number:03d}" for number in range(tenants)]
    for number, name in enumerate(names):
        members = {f"person-{number:03d}": "user"}
        (config / f"tenants/{name}.yaml").write_text(yaml.safe_dump({**tenant, "members": members}))
        for index in range(pipelines):
            made = {**pipeline, "tenant": name, "export": {"model": f"model-{index}"}}
            (config / f"pipelines/p-{number:03d}-{index:02d}.yaml").write_text(yaml.safe_dump(made))
        bundle = folder / "bundles" / name
        bundle.mkdir(parents=True)
        shutil.copy(CHECKOUT / "dags/training_dag.py", bundle)
    return names


def environment(folder: Path, names: list[str]) -> dict[str, str]:
    """Of Airflow's processes, on a database of their own."""
    bundles = [
        {
            "name": name,
            "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
            "kwargs": {"path": str(folder / "bundles" / name)},
        }
        for name in names
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "TRAINYARD_", "KUBECONFIG", "AWS"))}
    return kept | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(CHECKOUT / "plugins"), str(CHECKOUT)]),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAG_DISCOVERY_SAFE_MODE": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(CHECKOUT / "plugins"),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "TRAINYARD_CONFIG": str(folder / "config"),
    }


def parse(folder: Path, names: list[str]) -> list[float]:
    """Seconds of CPU that each bundle took, in one process."""
    command = [sys.executable, "-c", PARSE, *(str(folder / "bundles" / name) for name in names)]
    done = subprocess.run(command, env=environment(folder, names), capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        sys.exit(f"parsing failed:\n{done.stderr[-3000:]}")
    found = json.loads(lines[-1].removeprefix("RESULT "))
    if any(errors or not dags for _, dags, errors in found):
        sys.exit(f"some bundle has import errors or no DAG: {found}")
    return [seconds for seconds, _, _ in found]


def processor(folder: Path, names: list[str]) -> dict[str, float]:
    """One pass of a real DAG processor over all bundles: seconds, and its memory (PSS of it and its children, MiB, the most seen)."""
    env = environment(folder, names)
    migrated = subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], env=env, capture_output=True, text=True, check=False)
    if migrated.returncode:
        sys.exit(f"no database:\n{migrated.stderr[-3000:]}")
    began, most, own = time.monotonic(), 0.0, 0.0
    with (folder / "processor.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "airflow", "dag-processor", "--num-runs", "1"], env=env, stdout=log, stderr=log)
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                root = psutil.Process(process.pid)
                sizes = [one.memory_full_info().pss / 2**20 for one in (root, *root.children(recursive=True))]
                most, own = max(most, sum(sizes)), max(own, sizes[0])
            time.sleep(0.2)
    if process.returncode:
        sys.exit(f"the DAG processor ended with {process.returncode}:\n{(folder / 'processor.log').read_text()[-3000:]}")
    return {"seconds": time.monotonic() - began, "all": most, "itself": own}


@contextlib.contextmanager
def embedded(folder: Path) -> Iterator[dict[str, Any]]:
    """The embedded cluster with S3, and no Airflow; what its state document says."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        base = 13000 + probe.getsockname()[1] % 5000
    state = folder / "state"
    command = [sys.executable, "-m", "local.stack", "up", "--state", str(state), "--port-base", str(base), "--json"]
    command += ["--no-airflow", "--no-sync", "--unsafe-no-fsync", "--foreground", "--tied"]
    log = folder / "up.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=CHECKOUT, env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, stdout=out, stderr=out)
    try:
        while '"event": "up"' not in (text := log.read_text(errors="replace")) and '"event":"up"' not in text:
            if process.poll() is not None:
                sys.exit(f"the embedded cluster did not start:\n{text[-3000:]}")
            time.sleep(0.3)
        yield json.loads((state / "state.json").read_text())
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def sync(folder: Path, names: list[str]) -> dict[str, float]:
    """Seconds of `trainyard sync`: a dry run before there is anything, the real one, and a dry run when nothing differs."""
    found = {}
    with embedded(folder) as state:
        env = environment(folder, names) | {
            "TRAINYARD_KUBECONFIG": state["kubernetes"]["kubeconfig"],
            "TRAINYARD_S3_CREDENTIALS": state["s3"]["admin_file"],
            "TRAINYARD_S3_ENDPOINT": state["s3"]["endpoint"],
        }
        for what, words in (("dry run, nothing there", ["--dry-run"]), ("the first", []), ("dry run, all there", ["--dry-run"])):
            began = time.monotonic()
            command = [sys.executable, "-m", "trainyard.upkeep", "sync", "--state", str(folder / "synced"), "--json", *words]
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"sync ({what}) ended with {done.returncode}:\n{done.stderr[-3000:]}")
            found[what] = time.monotonic() - began
            print(f"sync, {what}: {found[what]:.1f} s, {len(json.loads(done.stdout)['changes'])} differences", file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--tenants", type=int, default=50)
    parser.add_argument("--pipelines", type=int, default=10)
    parser.add_argument("--no-sync", action="store_true", help="leave out what needs a cluster")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ty-scale-") as name:
        one, many = Path(name, "one"), Path(name, "many")
        alone, all_ = make_config(one, 1, 1), make_config(many, options.tenants, options.pipelines)
        dags = options.tenants * options.pipelines
        before = parse(one, alone)
        each = parse(many, all_)
        single = statistics.mean([*before, *parse(one, alone)])
        print(f"{'DAGs':<34}{dags}: {options.tenants} tenants × {options.pipelines} pipelines")
        print(f"{'parse, one pipeline of one tenant':<34}{single:.3f} s of CPU")
        print(f"{'parse, all':<34}{sum(each):.2f} s; a bundle {statistics.median(each):.3f} s (p50), {max(each):.3f} s (max)")
        print(f"{'all ÷ one':<34}{sum(each) / single:.1f} for {dags} DAGs", flush=True)
        for what, folder, names in (("one", one, alone), ("all", many, all_)):
            seen = processor(folder, names)
            memory = f"{seen['itself']:.0f} MiB itself, {seen['all']:.0f} MiB with its children"
            print(f"{f'DAG processor, {what}':<34}{seen['seconds']:.1f} s a pass; {memory}", flush=True)
        if not options.no_sync:
            for what, seconds in sync(many, all_).items():
                print(f"{f'sync: {what}':<34}{seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
