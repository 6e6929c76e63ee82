"""SIGKILL of every part of the platform while it trains."""
