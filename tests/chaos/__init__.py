"""SIGKILL of every part of the platform while it trains."""

STEPS = 5000
"""Of the run that is disturbed: half a minute of training."""
