"""The local stack as a program that tests start, ask and end. Without Airflow: that is tests/fixtures/platform.py."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from kubernetes import client, config

from local.leftovers import processes_of
from tests.fixtures.platform import CHECKOUT, clean_environment, free_block, until

UP_WITHIN_S = 900.0
"""With the Go build, where it is not in the cache yet."""


@dataclass
class Stack:
    """`python -m local.stack` on one state folder."""

    state: Path
    base: int = field(default_factory=lambda: free_block(20))

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "local.stack", words[0], "--state", str(self.state), *words[1:]]

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), cwd=CHECKOUT, env=clean_environment(), capture_output=True, text=True, timeout=UP_WITHIN_S
        )

    def spawn(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words), cwd=CHECKOUT, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def up_words(self, *more: str) -> list[str]:
        return ["up", "--port-base", str(self.base), "--no-airflow", "--unsafe-no-fsync", "--json", *more]

    def up(self, *more: str) -> subprocess.CompletedProcess[str]:
        return self.call(*self.up_words(*more))

    def document(self) -> dict[str, Any]:
        return dict(json.loads((self.state / "state.json").read_text()))

    def status(self) -> tuple[int, dict[str, Any]]:
        done = self.call("status", "--json")
        return done.returncode, json.loads(done.stdout)

    def core(self) -> client.CoreV1Api:
        settings = client.Configuration()
        config.load_kube_config(self.document()["kubernetes"]["kubeconfig"], client_configuration=settings)
        return client.CoreV1Api(client.ApiClient(settings))

    def aws(self, service: str, keys: dict[str, str] | None = None) -> Any:
        keys = keys or json.loads((self.state / "s3" / "admin.json").read_text())
        return boto3.client(
            service,
            endpoint_url=self.document()["s3"]["endpoint"],
            region_name="us-east-1",
            aws_access_key_id=keys["access_key"],
            aws_secret_access_key=keys["secret_key"],
            config=Config(retries={"mode": "standard", "total_max_attempts": 5}, s3={"addressing_style": "path"}),
        )

    def living(self) -> dict[int, str]:
        return processes_of(self.state)

    def nothing_lives(self) -> None:
        until(lambda: not self.living(), 20, lambda: f"nothing lives: {self.living()}")


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
