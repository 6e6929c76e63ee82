"""Environment variables of a trainer container: all it is told, beside the run spec inside one of them."""

from __future__ import annotations

from typing import Final

RUN_SPEC: Final = "TRAINYARD_RUN_SPEC"
"""The run spec, as JSON text."""
CPU_MILLIS: Final = "TRAINYARD_CPU_MILLIS"
"""The pod's CPU limit in thousandths of a core (downward API, divisor 1m)."""
MEMORY_BYTES: Final = "TRAINYARD_MEMORY_BYTES"
"""The pod's memory limit in bytes (downward API)."""
POD_NAME: Final = "TRAINYARD_POD_NAME"
REPLICA: Final = "TRAINYARD_REPLICA"
"""Log folder of a step's pod: ``prepare``, ``shard-3``. A gang's replica derives its own from role and index."""
ROLE: Final = "TRAINYARD_ROLE"
"""``chief``, ``ps`` or ``worker``; the index is Kubernetes' JOB_COMPLETION_INDEX."""
GANG: Final = "TRAINYARD_GANG"
"""JSON: ``{"generation": n, "addresses": {"chief": ["host:port"], "ps": [...], "worker": [...]}}``."""
S3_ACCESS_KEY: Final = "AWS_ACCESS_KEY_ID"
S3_SECRET_KEY: Final = "AWS_SECRET_ACCESS_KEY"
S3_CA_BUNDLE: Final = "AWS_CA_BUNDLE"
"""Path of the authorities that sign the S3 server's certificate, where they are not the public ones: boto3's own variable."""
