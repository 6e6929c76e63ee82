"""The user's model: found by its dotted name, built, and proved on one batch before anything waits for it.

``build(config) -> keras.Model`` is all a user must give; ``preprocess(example)`` beside it in the same module is optional
(``trainer.engine.records``). Nothing here knows a cluster.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trainer import code
from trainer.engine import graph_errors
from trainer.errors import TrainerError, UserError

_SERVER_GONE = frozenset({"UnavailableError", "AbortedError", "CancelledError"})
"""TensorFlow's errors about a replica that is away: nobody's mistake. By name, as this module does not import TensorFlow."""


@dataclass(frozen=True)
class UserModel:
    """What was found under ``model.build``."""

    name: str
    """``module:function``, for messages."""
    build: Callable[[dict[str, Any]], Any]
    preprocess: Callable[[dict[str, Any]], Any] | None


@contextmanager
def blame_user(doing: str) -> Iterator[None]:
    """Whatever is raised inside becomes a UserError that says what was being done, and where in the user's file.

    So does SystemExit: a ``sys.exit()`` there would end the replica with a code of the user's choosing, 0 among them.
    """
    try:
        yield
    except (TrainerError, MemoryError):
        raise
    except SystemExit as error:
        raise UserError(f"{doing}: {code.blame(error)}; code of a run must not end its process") from error
    except Exception as error:
        if type(error).__name__ in _SERVER_GONE:
            raise
        told = graph_errors.told(error) if graph_errors.is_graph_error(error) else code.blame(error)
        raise UserError(f"{doing}: {told}") from error


def find(build: str) -> UserModel:
    """The function that ``module:function`` names, with the module's ``preprocess`` if it has one.

    Raises:
        UserError: the module cannot be imported, or what it names is no function.
    """
    found = code.resolve(build, "model.build")
    if not callable(found):
        raise UserError(f"model.build: {build!r} is {type(found).__name__}: it must be a function `build(config) -> keras.Model`")
    preprocess = getattr(importlib.import_module(build.partition(":")[0]), "preprocess", None)
    if preprocess is not None and not callable(preprocess):
        raise UserError(f"{build}: `preprocess` beside it is {type(preprocess).__name__}: it must be a function of one example (a dict)")
    return UserModel(build, found, preprocess)


def make(user: UserModel, config: Mapping[str, Any]) -> Any:
    """``build(config)``, checked to be a keras.Model with something to train.

    Raises:
        UserError: ``build`` raised, or gave something else.
    """
    import keras

    with blame_user(f"{user.name}(config)"):
        model = user.build(dict(config))
    if not isinstance(model, keras.Model):
        raise UserError(f"{user.name}(config) gave {type(model).__name__}: it must return a keras.Model (of Keras {keras.__version__})")
    return model
