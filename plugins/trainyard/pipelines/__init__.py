"""Whole training DAGs: the factory, the form, the run spec, dataset versions as partitions, and the admission of a run."""
