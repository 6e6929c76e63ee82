"""Shared fixtures, and the one thing that the two sides disturb in each other when one process tests both."""

import sys

from absl import logging as absl_logging

pytest_plugins = ["tests.fixtures.airflow_home", "tests.fixtures.nodes", "tests.fixtures.s3", "tests.fixtures.shared_platform"]

# Airflow's logging set-up closes every handler it finds, and absl's (TensorFlow's) then closes the stream it was made on: pytest's own
# capture. It leaves the process's real stderr open.
absl_logging.get_absl_handler().python_handler.stream = sys.__stderr__
