"""The zoo: models that a pipeline may name without publishing code, ``trainer.models.<name>:build``.

Each is a plain function ``build(config) -> keras.Model`` that ends in logits and knows nothing of a cluster, exactly as a user's own
model does (``examples/digits_model``). A pipeline's ``model.config`` is its only argument; unknown keys are refused.
"""
