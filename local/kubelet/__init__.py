"""A kubelet whose containers are processes of the user: the one part of the embedded cluster that is ours.

It is not a container runtime and isolates nothing: what runs in it has the rights of whoever started it
(docs/embedded-kubelet.md has the three lists: done, accepted and not enforced, refused by name).

    kubelet (this package's __main__)      watches pods, decides, reports statuses, serves logs
      └─ runtime (one process, runtime.py)  forks a shim for each container; ends with the kubelet
           └─ shim (one a container, shim.py) parent and subreaper of the container's processes: logs, signals, exit code
                └─ the container's processes
"""
