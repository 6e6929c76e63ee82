"""What is on a node: the settings of its container runtime, kubelet, kube-proxy, flannel and kube-router, and the order they start in.

Paths with `/var/lib` and `/run` are the node's own (machine.py).
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.stack.state import write_private
from local.threenode import images, needs
from local.threenode.keys import Keys
from local.threenode.layout import ClusterState, NodeFolder
from local.threenode.machine import Spec, Uplink
from local.threenode.plan import Node, Plan, machine_memory

SETTINGS = "/var/lib/trainyard"
SOCKET = "/run/containerd/containerd.sock"
CONF_DIR = "/var/lib/cni/conf"
CONF = f"{CONF_DIR}/10-threenode.conflist"
PROGRAMS = ("node", "flannel", "kube-router")
"""Built ones that run on a node; the rest is Debian's."""
EVICTION_MEMORY = 100 * 2**20
"""Bytes: with less than this free on the machine, a node ends pods."""
MTU = 1400
"""Bytes: the bridge's 1500 less vxlan's 50 and a margin."""


@dataclass(frozen=True)
class NodeSetup:
    """Writes one node's disk and says how it is started."""

    state: ClusterState
    plan: Plan
    node: Node
    keys: Keys
    programs: Mapping[str, Path]
    """Name -> built program on the machine."""

    @property
    def folder(self) -> NodeFolder:
        return self.state.node(self.node)

    @property
    def spec_file(self) -> Path:
        return self.state.run / f"{self.node.name}.machine.json"

    # ------------------------------------------------------------------------------------------------------------ write
    def write(self) -> None:
        """Everything but the pods' network, which is known once the controllers have given the node its addresses."""
        folder, keys = self.folder, self.keys
        folder.make()
        settings = folder.settings
        for name, source in (("ca.crt", keys.authority), ("node.crt", keys.crt(self.node.name)), ("node.key", keys.key(self.node.name))):
            write_private(settings / name, source.read_text(encoding="ascii"))
        for file, identity in (("kubelet", self.node.name), ("kube-proxy",) * 2, ("flannel",) * 2, ("kube-router",) * 2):
            write_private(settings / f"{file}.conf", keys.kubeconfig(identity, self.plan.server))
        write_private(settings / "resolv.conf", "")
        write_private(settings / "containerd.toml", self.containerd())
        write_private(settings / "kubelet.json", json.dumps(self.kubelet(), indent=2))
        write_private(settings / "net-conf.json", json.dumps({"Network": str(self.plan.pods), "Backend": {"Type": "vxlan"}}))
        shutil.rmtree(settings / "registries", ignore_errors=True)
        mirror = settings / "registries" / self.plan.registry
        mirror.mkdir(parents=True)
        there = f"http://{self.plan.master}:{self.plan.ports['registry']}"
        (mirror / "hosts.toml").write_text(f'server = "{there}"\n[host."{there}"]\n', encoding="ascii")
        for name in ("pause", "coredns"):
            source, target = self.state.root / f"{name}.tar", settings / f"{name}.tar"
            target.unlink(missing_ok=True)
            os.link(source, target)
        for name in PROGRAMS:
            (folder.programs / name).touch(mode=0o755)
        write_private(self.spec_file, json.dumps(dataclasses.asdict(self.spec())))

    def write_network(self, pod_range: str) -> None:
        """The pods' interfaces, by which also kube-proxy, flannel and kube-router may start."""
        bridge = {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "isDefaultGateway": True,
            "ipMasq": False,
            "hairpinMode": True,
            "mtu": MTU,
            "ipam": {"type": "host-local", "dataDir": "/var/lib/cni/ipam", "ranges": [[{"subnet": pod_range}]]},
        }
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        chain = {"cniVersion": "0.4.0", "name": "threenode", "plugins": [bridge, ports]}
        write_private(self.folder.cni / Path(CONF).name, json.dumps(chain))

    # --------------------------------------------------------------------------------------------------------- programs
    def containerd(self) -> str:
        return f"""version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images.PAUSE}"
  restrict_oom_score_adj = true   # a root without CAP_SYS_RESOURCE (in a virtual machine's jail) may not lower it
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{SETTINGS}/registries"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{needs.cni_folder() or needs.CNI_FOLDERS[0]}"
    conf_dir = "{CONF_DIR}"
"""

    def kubelet(self) -> dict[str, Any]:
        """Its KubeletConfiguration, as far as it is not the default (kubelet.config.k8s.io/v1beta1)."""
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": str(self.node.address),
            "authentication": {
                "anonymous": {"enabled": False},
                "x509": {"clientCAFile": f"{SETTINGS}/ca.crt"},
                "webhook": {"enabled": True},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": f"{SETTINGS}/node.crt",
            "tlsPrivateKeyFile": f"{SETTINGS}/node.key",
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "cgroupDriver": "cgroupfs",  # no init system runs on the node
            "cgroupRoot": f"/{self.node.cgroup}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "clusterDNS": [str(self.plan.dns)],
            "clusterDomain": "cluster.local",
            "resolvConf": f"{SETTINGS}/resolv.conf",
            "volumePluginDir": "/var/lib/kubelet/volumeplugins",
            "enforceNodeAllocatable": [],  # each pod's limit is enforced; all nodes share one machine
            "systemReserved": self.reserved(),
            # One disk under all nodes: a node that sees it fill would drop what the others need as well.
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "evictionHard": {"memory.available": str(EVICTION_MEMORY), "nodefs.available": "1%", "imagefs.available": "1%"},
            "syncFrequency": "10s",
            "nodeStatusUpdateFrequency": "5s",
            "oomScoreAdj": 0,
            "healthzPort": 0,
        }

    def reserved(self) -> dict[str, str]:
        """A kubelet knows only what to hold back of the machine's own size; where it begins to evict, it holds back by itself."""
        held = {}
        if self.plan.cpus is not None:
            held["cpu"] = f"{round(((os.cpu_count() or 1) - self.plan.cpus) * 1000)}m"
        if self.plan.memory is not None:
            held["memory"] = str(max(0, machine_memory() - EVICTION_MEMORY - round(self.plan.memory * 2**30)))
        return held

    def spec(self) -> Spec:
        """How machine.py is to start it."""
        plan, node, folder = self.plan, self.node, self.folder
        uplink = Uplink(plan.bridge, node.cable, f"{node.address}/{plan.subnet.prefixlen}", str(plan.master))
        programs = [(str(self.programs[name]), str(folder.programs / name)) for name in PROGRAMS]
        return Spec(
            hostname=node.name,
            uplink=uplink,
            binds=[*programs, (str(folder.lib), "/var/lib"), (str(folder.log), "/var/log")],
            tmpfs=["/run"],
            sysctls={"net.ipv4.ip_forward": "1", "net.bridge.bridge-nf-call-iptables": "1"},
            environment={
                "PATH": needs.SEARCH,
                "HOME": "/root",
                "LANG": "C.UTF-8",
                "TMPDIR": f"{SETTINGS}/tmp",
                "NODE_NAME": node.name,  # flannel's way to know
            },
            services=self.services(),
            logs=str(self.state.logs),
            report=str(self.state.report(node)),
        )

    def services(self) -> list[dict[str, Any]]:
        """In the order in which they can start: containerd, the images that nobody can pull, kubelet; then what needs the pods' network."""
        binary = f"{SETTINGS}/bin"
        name = f"--hostname-override={self.node.name}"
        kubelet = [f"{binary}/node", "kubelet", f"--config={SETTINGS}/kubelet.json", f"--kubeconfig={SETTINGS}/kubelet.conf"]
        kubelet += [name, f"--node-ip={self.node.address}"]
        proxy = [f"{binary}/node", "kube-proxy", f"--kubeconfig={SETTINGS}/kube-proxy.conf", name, f"--cluster-cidr={self.plan.pods}"]
        # conntrack's sizes are the machine's, not the node's: left alone.
        proxy += ["--proxy-mode=iptables", "--conntrack-max-per-core=0"]
        proxy += ["--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0"]
        flannel = [f"{binary}/flannel", f"-kubeconfig={SETTINGS}/flannel.conf", f"-net-conf={SETTINGS}/net-conf.json"]
        router = [f"{binary}/kube-router", f"--kubeconfig={SETTINGS}/kube-router.conf", name, "--run-router=false", "--run-firewall=true"]
        router += ["--run-service-proxy=false", "--run-loadbalancer=false", "--health-port=0", "--metrics-port=0"]
        router += [f"--service-cluster-ip-range={self.plan.services}"]
        # kube-proxy does not try its first sync again when that fails (Kubernetes 1.34), and it fails when kube-router puts a table back as
        # it was a moment ago: so kube-router comes later, and a kube-proxy without rules is started again.
        rules = ["sh", "-c", "iptables-save -t nat | grep -q '^-A KUBE-SERVICES .*default/kubernetes:https'"]
        load = [
            {"name": f"image-{one}", "once": True, "after": [SOCKET], "argv": _import(f"{SETTINGS}/{one}.tar")}
            for one in ("pause", "coredns")
        ]
        return [
            {"name": "containerd", "argv": ["containerd", "--config", f"{SETTINGS}/containerd.toml"]},
            *load,
            {"name": "kubelet", "argv": kubelet, "needs": [str(one["name"]) for one in load]},
            {"name": "kube-proxy", "argv": proxy, "after": [CONF], "check": rules},
            {"name": "service-rules", "once": True, "after": [CONF], "argv": rules},
            {"name": "flannel", "argv": flannel, "after": [CONF]},
            {"name": "kube-router", "argv": router, "needs": ["service-rules"]},
        ]


def _import(archive: str) -> list[str]:
    return ["ctr", "--address", SOCKET, "--namespace", "k8s.io", "images", "import", archive]
