"""Trainyard's own models and dataset builders, by the name a file gives them.

The trainer's side holds the code; a contract test compares. Known here so that a misspelt name is refused before anything starts.
"""

from __future__ import annotations

from typing import Final

MODELS: Final = frozenset({"trainer.models.cnn:build", "trainer.models.mlp:build"})
BUILDERS: Final = frozenset({"trainer.data.mnist5k:Mnist5k", "trainer.data.digits:Digits"})
PREFIX: Final = "trainer."
"""What starts so is the trainer's own; everything else is a user's package."""
