"""Starts and watches what makes one bare machine enough: Kubernetes' control plane, the node, S3 and Airflow.

One *starter* process owns every component through a *shim* (shim.py), so that nothing outlives it. It is a program (`python -m
local.stack`); nothing in plugins/ or images/ imports it, and it imports nothing of theirs: for them this is a cluster, an S3 endpoint
and an Airflow like any other.
"""
