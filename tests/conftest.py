"""Shared fixtures only; nothing here changes how tests run."""

pytest_plugins = ["tests.fixtures.airflow_home", "tests.fixtures.s3"]
