"""The ``trainyard`` command: what people do with a platform, from any machine.

It needs Airflow's address and the person's own token, nothing else: no S3 key and no Kubernetes credential ever lies on a person's
machine. Not here: anything that runs inside Airflow (``trainyard.api`` answers these commands) and the embedded cluster's start-up
(``local/``, which ``up`` and ``down`` start as a program).

No module here imports Airflow, Kubernetes, boto3 or TensorFlow when it is imported: ``trainyard --help`` answers at once.
"""
