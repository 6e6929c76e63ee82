"""The S3 server: SeaweedFS from its PyPI wheel, its data in the state folder; on loopback, or where a cluster's pods reach its S3 port.

Its admin identity is ours (admin.json, for Airflow's side, which makes all the others through the IAM API that SeaweedFS serves on the
S3 port: create_user, put_user_policy, create_access_key of boto3's "iam" client; kept over restarts). Its inner ports (master, volume,
filer) hand out any object without credentials: they are always on loopback and must never be published.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from local.stack.state import State, write_private
from local.stack.supervisor import Component

REGION = "us-east-1"
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class S3:
    """The managed S3 server of one state folder."""

    state: State
    ports: Mapping[str, int]
    weed: Path
    host: str = LOOPBACK
    """Where its S3 port listens, and only that: another address of this machine, where the cluster's pods are elsewhere."""

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.ports['s3']}"

    @property
    def admin_file(self) -> Path:
        return self.state.s3 / "admin.json"

    def prepare(self) -> None:
        """Makes the admin identity (kept over restarts) and tells it the present endpoint."""
        try:
            admin = json.loads(self.admin_file.read_text(encoding="utf-8"))
            access, secret = str(admin["access_key"]), str(admin["secret_key"])
        except (OSError, ValueError, KeyError):
            access, secret = "TRAINYARD" + secrets.token_hex(6).upper(), secrets.token_urlsafe(30)
        value = {"endpoint": self.endpoint, "region": REGION, "access_key": access, "secret_key": secret}
        write_private(self.admin_file, json.dumps(value, indent=2) + "\n")
        identity = {
            "name": "admin",
            "credentials": [{"accessKey": access, "secretKey": secret}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        write_private(self.state.s3 / "identities.json", json.dumps({"identities": [identity]}) + "\n")
        (self.state.s3 / "data").mkdir(mode=0o700, exist_ok=True)
        self.remove_sockets()

    def remove_sockets(self) -> None:
        """SeaweedFS puts sockets into /tmp, named by port, and a killed one leaves them. Its parts talk over them: to be called only
        while no server has these ports."""
        for name, port in self.ports.items():
            if name.startswith("s3"):
                for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                    if path.lstat().st_uid == os.getuid():
                        path.unlink(missing_ok=True)

    def component(self, environment: Mapping[str, str]) -> Component:
        p = self.ports
        program = [str(self.weed), "server", f"-dir={self.state.s3 / 'data'}", f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", "-filer", "-s3"]
        program += [f"-s3.ip.bind={self.host}"]
        program += [f"-master.port={p['s3_master']}", f"-master.port.grpc={p['s3_master_grpc']}", f"-volume.port={p['s3_volume']}"]
        program += [f"-volume.port.grpc={p['s3_volume_grpc']}", f"-filer.port={p['s3_filer']}", f"-filer.port.grpc={p['s3_filer_grpc']}"]
        program += [f"-s3.port={p['s3']}", f"-s3.port.grpc={p['s3_grpc']}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        program += [f"-s3.config={self.state.s3 / 'identities.json'}", "-s3.iam.readOnly=false", "-s3.autoCreateBucket=false"]
        # Without the first a restarted server takes no writes for 15 s; without the second it tells its makers about itself.
        program += ["-master.electionTimeout=1s", "-master.telemetry=false"]
        # Volumes of 256 MiB, one at first for each bucket: with the defaults a disk with 70 GB free is full after ten buckets.
        program += ["-master.volumeSizeLimitMB=256", "-volume.max=0", "-volume.preStopSeconds=0"]
        env = {**environment, "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}
        # It does not end on TERM (12 s and more were seen), and what it has acknowledged is in the kernel's hands: KILL soon.
        return Component("s3", program, self.state.s3, env, 1.0, lambda since: self.ready(), 60.0)

    def ready(self) -> bool:
        """The S3 port answers (an anonymous request is refused: that is an answer) and the master leads and has room, so that
        writes work."""
        try:
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(self.endpoint + "/", timeout=2)
        except urllib.error.HTTPError as error:
            if error.code >= 500:
                return False
        except (OSError, http.client.HTTPException):  # the last: whoever has the port does not speak HTTP
            return False
        return self._master_has("/cluster/status", "IsLeader") and self._master_has("/dir/status", "Topology", "Max")

    def _master_has(self, path: str, *keys: str) -> bool:
        url = f"http://{LOOPBACK}:{self.ports['s3_master']}{path}"
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=2) as answer:
                value = json.load(answer)
        except (OSError, ValueError, http.client.HTTPException):
            return False
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return bool(value)
