"""A whole Kubernetes on one Linux machine: a master and nodes with a kernel's namespaces in place of machines. Needs root.

`python -m local.threenode --help`; the guide is docs/guides/cluster.md.
"""
