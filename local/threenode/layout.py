"""The cluster's state folder: what lies where. One starter at a time has it (local/stack/state.py's lock)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from local.stack.events import StackError
from local.stack.state import State
from local.threenode.plan import Node

DEFAULT = Path("/var/lib/trainyard/threenode")


@dataclass(frozen=True)
class ClusterState(State):
    """Paths of one cluster's folder. Root's alone, but for the way to the kubeconfig."""

    @classmethod
    def at(cls, root: Path) -> ClusterState:
        """Makes the folders where they are absent. Raises StackError naming the folder when that is impossible."""
        state = cls(root.absolute())
        try:
            state.root.mkdir(parents=True, exist_ok=True)
            state.root.chmod(0o711)  # the kubeconfig may be the user's who called sudo
            for path in (state.run, state.logs, state.keys, state.nodes, state.registry):
                path.mkdir(exist_ok=True)
                path.chmod(0o700)
        except OSError as error:
            raise StackError(
                f"cannot make the cluster's folder {state.root}: {error.strerror}; choose another by --state DIR or TRAINYARD_THREENODE"
            ) from error
        return state

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    @property
    def etcd(self) -> Path:
        return self.root / "etcd"

    @property
    def registry(self) -> Path:
        return self.root / "registry"

    @property
    def nodes(self) -> Path:
        return self.root / "nodes"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.root / "kubeconfig"

    def kubeconfig_of(self, identity: str) -> Path:
        """That of one of Trainyard's own identities."""
        return self.root / f"{identity}.kubeconfig"

    def node(self, node: Node) -> NodeFolder:
        return NodeFolder(self.nodes / node.name)

    def report(self, node: Node) -> Path:
        """Where the node's first process says how its programs are."""
        return self.run / f"{node.name}.services.json"


@dataclass(frozen=True)
class NodeFolder:
    """A node's disk. Its programs see `lib` as /var/lib and `log` as /var/log."""

    root: Path

    @property
    def lib(self) -> Path:
        return self.root / "lib"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def settings(self) -> Path:
        """Ours, on the node: configuration, keys, images, programs; /var/lib/trainyard there."""
        return self.lib / "trainyard"

    @property
    def programs(self) -> Path:
        return self.settings / "bin"

    @property
    def cni(self) -> Path:
        return self.lib / "cni" / "conf"

    def make(self) -> None:
        for path in (self.programs, self.cni, self.log, self.settings / "tmp", self.lib / "kubelet", self.lib / "containerd"):
            path.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o700)


def default_root() -> Path:
    """$TRAINYARD_THREENODE, else /var/lib/trainyard/threenode."""
    return Path(os.environ.get("TRAINYARD_THREENODE") or DEFAULT)
