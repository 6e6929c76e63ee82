"""``python -m trainyard.upkeep sync|clean-up|reap``: the platform's own programs, for pods and administrators.

Exit codes: 0 done; 1 refused or not reachable, with one line on stderr; 2 wrong usage or configuration.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from pydantic import ValidationError

from trainyard.contract import environment
from trainyard.contract.run_spec import RunSpec
from trainyard.errors import ConfigError, TrainyardError, UnavailableError
from trainyard.store import Store
from trainyard.upkeep.reaping import order


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainyard.upkeep", description="The platform's own upkeep.")
    commands = parser.add_subparsers(dest="command", required=True)
    sync = commands.add_parser("sync", help="make Airflow, the cluster and S3 what the tenants' files say")
    sync.add_argument("--state", type=Path, required=True, help="the state folder (var/)")
    sync.add_argument("--config", help="the configuration folder; default: TRAINYARD_CONFIG")
    sync.add_argument("--dry-run", action="store_true", help="only say what differs")
    sync.add_argument("--json", action="store_true", help="one JSON document")
    clean = commands.add_parser("clean-up", help="take down what a run left and write its outcome")
    clean.add_argument("--tenant", required=True)
    clean.add_argument("--run", required=True, help="the run's short name")
    clean.add_argument("--outcome", choices=("failed", "cancelled"), default="failed", help="if no step has written one")
    storage = clean.add_argument_group("storage", f"where the run's objects lie; default: the run spec in {environment.RUN_SPEC}")
    storage.add_argument("--bucket")
    storage.add_argument("--endpoint", help="URL of the S3 server; none for AWS")
    storage.add_argument("--region", default="us-east-1")
    reap = commands.add_parser("reap", help=f"carry out the reaper's order, which is in {order.VARIABLE}")
    reap.add_argument("--dry-run", action="store_true", help="only say what would go, whatever the order says")
    return parser


def _sync(options: argparse.Namespace) -> None:
    from trainyard.settings import load
    from trainyard.upkeep.sync import needs_restart, sync

    changes = sync(load(options.config), options.state, options.dry_run)
    if options.json:
        print(json.dumps({"changes": [asdict(change) for change in changes], "restart_airflow": needs_restart(changes)}))
        return
    for change in changes:
        print(change)
    if not changes:
        print("nothing differs")


def _clean_up(options: argparse.Namespace) -> None:
    from trainyard.kube.client import client
    from trainyard.upkeep.clean_up import clean_up

    store = _store(options)
    with client() as api:
        clean_up(api, store, tenant=options.tenant, run=options.run, outcome=options.outcome, log=lambda line: print(line, flush=True))


def _reap(options: argparse.Namespace) -> None:
    from trainyard.kube.client import client
    from trainyard.upkeep.reaping.executing import Reaper

    text = os.environ.get(order.VARIABLE)
    if not text:
        raise ConfigError(f"{order.VARIABLE} holds no order: the DAG reap_stray_jobs makes one, and has a dry run in its form")
    try:
        given = order.Order.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(f"{order.VARIABLE} holds no order of this release: {error.errors()[0]['msg']}") from error
    if options.dry_run:
        given = given.model_copy(update={"dry_run": True})

    def store(tenant: str) -> Store:
        keys = os.environ.get(environment.S3_ACCESS_KEY), os.environ.get(environment.S3_SECRET_KEY)
        return Store(given.buckets[tenant], given.endpoint, given.region, *keys)

    with client() as api:
        report = Reaper(api, store, given, log=lambda line: print(line, flush=True)).carry_out()
    print(report)
    if report.failed:
        raise UnavailableError("\n".join(report.failed))


def _store(options: argparse.Namespace) -> Store:
    endpoint, region, bucket = options.endpoint, options.region, options.bucket
    if bucket is None:
        text = os.environ.get(environment.RUN_SPEC)
        if not text:
            raise ConfigError(f"neither --bucket nor {environment.RUN_SPEC} says where the run's objects lie: give one of them")
        try:
            spec = RunSpec.model_validate_json(text).storage
        except ValidationError as error:
            raise ConfigError(f"{environment.RUN_SPEC} holds no run spec of this release: {error.errors()[0]['msg']}") from error
        endpoint, region, bucket = spec.endpoint, spec.region, spec.bucket
    return Store(bucket, endpoint, region, os.environ.get(environment.S3_ACCESS_KEY), os.environ.get(environment.S3_SECRET_KEY))


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        {"sync": _sync, "clean-up": _clean_up, "reap": _reap}[options.command](options)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except TrainyardError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
