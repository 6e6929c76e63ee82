"""Airflow operators of Trainyard: a step's pod, the gang, and what both know of a run. Whole DAGs are put together elsewhere."""
