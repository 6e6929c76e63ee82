"""What the two sides of Trainyard agree on: the run spec, S3 keys, exit codes and names.

Pure: no network, no Airflow, no Kubernetes, no TensorFlow. The trainer's side shares no Python with this package; it reads the
same documents by its own code, and ``tests/contract`` holds the two together.
"""
