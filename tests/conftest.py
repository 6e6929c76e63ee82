"""Shared fixtures only; nothing here changes how tests run."""

pytest_plugins = ["tests.fixtures.s3"]
