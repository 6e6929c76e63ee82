"""One module per step of a run; the orchestration side declares a pod under the same name in ``trainyard.steps``."""
