"""Kubernetes as Trainyard uses it: the client, the one way a pod is composed, a gang's objects, and what the cluster says of them.

No Airflow here, and no S3: :mod:`trainyard.operators` brings the three together.
"""
