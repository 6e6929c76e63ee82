"""One module per step, each with one ``build()``: the declaration of what ``trainer/steps/<same name>.py`` does in a pod.

A step says what its task is; which DAG, tenant and neighbours it has is for :mod:`trainyard.pipelines.factory`.
"""
