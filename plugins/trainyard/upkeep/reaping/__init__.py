"""The reaper: what Airflow no longer knows of, or has ended, and is still in the cluster.

It trusts two things only, what the cluster says is there and what Airflow says of its runs, and no callback. In two halves (docs/adr):
a task asks Airflow about every run that the cluster holds something of (:mod:`judging`), and a pod with the identity that may delete in
tenants' namespaces carries out the :mod:`order` that comes of it (:mod:`executing`). Where Airflow does not answer in full there is no
order, so nothing is deleted.
"""
