"""One strategy with all that lives on its servers: model, optimizer, step, data. A lost PS ends it.

Everything in it is TensorFlow's own ParameterServerStrategy and ClusterCoordinator: a worker that dies is the coordinator's business (its
closure runs elsewhere, and a worker that is back is used again), a PS that dies is ours, since its variables are gone.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainer.engine import graph_errors, objective, optimizers, training_step, user_model
from trainer.errors import UserError

CHIEF_DEVICE = "/job:chief/replica:0/task:0/device:CPU:0"


class PsLost(Exception):
    """Raised when a parameter server is gone, or a server came back empty."""


class Session:
    """Everything is made in the constructor, which must only be called when all peers answer: the strategy would wait for ever."""

    def __init__(
        self,
        addresses: Mapping[str, Sequence[str]],
        user: user_model.UserModel,
        config: Mapping[str, Any],
        optimizer: str,
        learning_rate: float,
        seed: int,
    ) -> None:
        import keras
        import tensorflow as tf

        self._tf = tf
        self._user = user
        with self._ps_errors():
            self._strategy = _strategy(addresses)
            self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)
            with self._strategy.scope():
                keras.utils.set_random_seed(seed)
                self.model = user_model.make(user, config)
                aim = objective.of(self.model, user)
                self._optimizer = optimizers.make(optimizer, learning_rate)
                self._optimizer.build(self.model.trainable_variables)
                optimizers.count_exactly(self._optimizer)
                self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
            self._checkpoint = tf.train.Checkpoint(model=self.model, optimizer=self._optimizer, step=self.step)
            self._closure = self._make_closure(training_step.make(self.model, self._optimizer, aim))
        self._iterator: Any = None

    def feed(self, dataset: Callable[[], Any]) -> None:
        """``dataset()`` is traced here and run on each worker, in its current directory; once, before the first ``schedule``."""
        with self._ps_errors():
            self._iterator = iter(self._coordinator.create_per_worker_dataset(dataset))

    def _make_closure(self, step: Callable[[Any, Any], Any]) -> Any:
        tf, strategy = self._tf, self._strategy

        @tf.function
        def closure(iterator: Any, steps: Any) -> Any:
            total = tf.constant(0.0)
            for _ in tf.range(steps):
                total += strategy.run(step, args=next(iterator))
            return total / tf.cast(steps, tf.float32)

        return closure

    def schedule(self, steps: int) -> Any:
        """Asks for ``steps`` steps on whichever worker is free next."""
        with self._ps_errors():
            return self._coordinator.schedule(self._closure, args=(self._iterator, self._tf.constant(steps)))

    def fetch(self, result: Any) -> float | None:
        """The mean loss of a scheduled closure; None when it was done, but its worker died before the loss was fetched.

        A result stays on its worker until it is asked for, and a closure that is done is not run again: its steps count.

        Raises:
            PsLost: a parameter server is gone.
            UserError: the computation itself is wrong (shapes, labels out of range).
        """
        with self._ps_errors():
            try:
                return float(result.fetch())
            except self._tf.errors.OpError as error:
                if _went_with_its_worker(error):
                    return None
                raise self._first_error() or error from error

    def _first_error(self, timeout: float = 10.0) -> BaseException | None:
        """The error that began it: it cancels everything else, so the oldest closure may only know that it was cancelled."""
        found: list[BaseException] = []

        def join() -> None:
            try:
                self._coordinator.join()
            except BaseException as error:
                found.append(error)

        # In a thread, as a coordinator whose own threads have died is joined for ever.
        thread = threading.Thread(target=join, daemon=True)
        thread.start()
        thread.join(timeout)
        return found[0] if found else None

    def save(self, prefix: str, step: int) -> None:
        """Writes TensorFlow's checkpoint files under ``prefix`` on the chief. No closure may be running."""
        with self._ps_errors():
            self.step.assign(step)
            self._checkpoint.write(prefix, options=self._options())

    def restore(self, prefix: str) -> int:
        """Reads what ``save`` wrote, under any number of parameter servers; the step it was saved at."""
        with self._ps_errors():
            self._checkpoint.read(prefix, options=self._options()).assert_existing_objects_matched()
            return int(self.step.numpy())

    def _options(self) -> Any:
        # Without it each PS writes its part into its own current directory.
        return self._tf.train.CheckpointOptions(experimental_io_device=CHIEF_DEVICE)

    def _ps_errors(self) -> _Translate:
        return _Translate(self._tf, self._user.name)


class _Translate:
    """TensorFlow's errors in ours: gone servers are PsLost, a computation that cannot be is the user's."""

    def __init__(self, tf: Any, name: str) -> None:
        errors = tf.errors
        self._name = name
        self._gone = (errors.UnavailableError, errors.AbortedError, errors.CancelledError)
        # What kernels raise for impossible operands. The rest (DataLoss, Internal, …) keeps its own words.
        self._wrong = (errors.InvalidArgumentError, errors.FailedPreconditionError, errors.UnimplementedError, errors.OutOfRangeError)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        # A server that came back answers like one that is asked for nonsense: it knows nothing of what its predecessor held.
        if isinstance(error, self._gone) or (isinstance(error, self._wrong) and _of_a_new_server(str(error))):
            raise PsLost(_who(str(error), kind.__name__)) from error
        if isinstance(error, self._wrong):
            raise UserError(f"{self._name}: the model cannot compute a batch: {graph_errors.told(error)}") from error


def _who(text: str, kind: str) -> str:
    """Which PS an error is about, in few words: TensorFlow's own are pages."""
    found = sorted(set(re.findall(r"/job:ps/replica:0/task:(\d+)", text)))
    return f"{', '.join(f'ps-{index}' for index in found) or text.splitlines()[0][:200]}: {kind}"


def _of_a_new_server(text: str) -> bool:
    """Whether an InvalidArgumentError is what a server says that took another's place."""
    known = ("unknown device", "Primary device is not remote", "Unable to find the relevant tensor remote_handle")
    return any(words in text for words in known)


def _went_with_its_worker(error: Exception) -> bool:
    """Whether a result is gone because its worker is: no parameter server is named.

    The words are those by which TensorFlow's coordinator tells the two (``_is_worker_failure`` of cluster_coordinator.py), the last three
    being of a worker that died and is back already. It asks so about closures that run; nobody asks about the results of those that ran.
    """
    from tensorflow import errors

    text = str(error)
    if "remote target /job:worker" not in text or "remote target /job:ps" in text:
        return False
    if isinstance(error, errors.InvalidArgumentError):
        return _of_a_new_server(text)
    return isinstance(error, (errors.UnavailableError, errors.AbortedError))


def _strategy(addresses: Mapping[str, Sequence[str]]) -> Any:
    import tensorflow as tf

    cluster = tf.train.ClusterSpec({role: list(hosts) for role, hosts in addresses.items()})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, task_type="chief", task_id=0, rpc_layer="grpc")
    return tf.distribute.ParameterServerStrategy(resolver)


def say_done(addresses: Mapping[str, Sequence[str]], message: str, timeout: float = 5.0) -> list[str]:
    """Writes the file DONE into each peer's current directory, through TensorFlow; the names of those that could not be told in time.

    They are told at once and apart, as a hung peer would block for ever. Who is not told ends soon by itself: its chief is gone.
    """
    import tensorflow as tf

    told: set[str] = set()

    def tell(role: str, index: int) -> None:
        try:
            with tf.device(f"/job:{role}/replica:0/task:{index}/device:CPU:0"):
                tf.io.write_file("DONE", message)
            told.add(f"{role}-{index}")
        except tf.errors.OpError:  # a peer that is dead needs no word
            return

    peers = [(role, index) for role in ("worker", "ps") for index in range(len(addresses.get(role, ())))]
    threads = [threading.Thread(target=tell, args=peer, daemon=True) for peer in peers]
    for thread in threads:
        thread.start()
    until = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return [f"{role}-{index}" for role, index in peers if f"{role}-{index}" not in told]
