"""The execution side of Trainyard: what runs inside pods.

It knows TensorFlow, S3 and the run spec. It knows nothing of Airflow, Kubernetes or the orchestration package (``images/ruff.toml``
and import-linter refuse those imports). This file stays empty of imports: the supervisor and the quick steps must not pay for TensorFlow.
"""
