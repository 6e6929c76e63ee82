"""A run's chief: proves the model, waits for the peers, trains, saves, and tells the peers when it is done.

Its good end leaves ``result.json`` in the current directory, which its supervisor publishes, and the file DONE with every peer.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from trainer import code
from trainer.data.reading import read_shards
from trainer.engine import loop, peers, proof, runtime, session
from trainer.engine import plan as plans
from trainer.engine.checkpoints import Checkpoints
from trainer.engine.generation import Generation
from trainer.engine.progress import Meter, Publisher, Stop
from trainer.engine.stall import Watch
from trainer.environment import CHIEF, PS, WORKER, Gang
from trainer.errors import PeersMissingError, SupersededError
from trainer.steps.context import Context
from trainer.storage import keys
from trainer.storage.objects import encode

RESULT: Final = Path("result.json")
PS_TRIES: Final = 5
"""Sessions in a row that a lost PS may end without one checkpoint in between."""
PS_BACK_S: Final = 120.0
"""How long a lost PS may take to come back: its supervisor restarts it in place in seconds, Kubernetes a pod within a minute or so."""


def run(context: Context, gang: Gang, threads: int, say: Callable[[str], None]) -> None:
    """Trains the run to its last step.

    Raises:
        UserError, DataError, DivergedError, SupersededError: a retry ends the same way.
        PeersMissingError, StorageError: it may not.
    """
    spec, began = context.spec, time.monotonic()
    RESULT.unlink(missing_ok=True)
    presence = peers.Presence(gang.own_address)
    generation = Generation(context.data, spec.run, gang.generation)
    generation.check()
    plan = plans.load(context)
    code.install(context.data, spec.code, context.work)
    runtime.start(threads)
    # Its weights are not needed any more: those that are trained live on the parameter servers.
    proved = replace(proof.prove(spec, plan.features), model=None)
    say(f"the model {spec.model.build} takes a batch; {plan.steps} steps over {plan.train_examples} examples")
    others = dict(gang.peers())
    peers.wait_for(others, began + spec.training.start_deadline_s, say)
    presence.close()

    chief = _Chief(context, gang, plan, proved, generation, say)
    step, loss = chief.train(others)
    RESULT.write_bytes(encode({"checkpoint_step": step, "loss": loss}))
    untold = session.say_done(gang.addresses, json.dumps({"generation": gang.generation, "step": step}))
    say(f"done: step {step}" + (f"; could not be told: {', '.join(untold)}" if untold else ""))


class _Chief:
    """What lives as long as the run, over all sessions."""

    def __init__(
        self,
        context: Context,
        gang: Gang,
        plan: plans.Plan,
        proved: proof.Proved,
        generation: Generation,
        say: Callable[[str], None],
    ) -> None:
        self._context, self._spec, self._gang, self._plan, self._proved, self._say = context, context.spec, gang, plan, proved, say
        self._generation = generation
        self._checkpoints = Checkpoints(context.data, context.spec, generation, context.work / "checkpoints", say)
        self._watch = Watch()
        self._saved = 0
        self._loss: float | None = None
        """Mean loss of the last report, kept in the checkpoint for a chief that finds nothing left to do."""

    def train(self, others: Mapping[str, str]) -> tuple[int, float | None]:
        """Trains to the last step, through lost parameter servers; the last checkpoint's step and the loss there.

        Raises:
            PeersMissingError: parameter servers are lost again and again, or do not come back.
        """
        publisher = Publisher(self._publish, self._say)
        tries = 0
        try:
            while True:
                saved = self._saved
                try:
                    self._one_session(publisher)
                    break
                except session.PsLost as lost:
                    tries = 1 if self._saved > saved else tries + 1
                    if tries > PS_TRIES:
                        raise PeersMissingError(f"a parameter server was lost {tries} times, no checkpoint between: {lost}") from lost
                    self._say(f"a parameter server is lost ({lost}); restoring when it is back")
                self._watch.touch("waiting for a lost parameter server")
                gc.collect()  # the old session's variables on the PS that survived
                time.sleep(min(tries, 3))
                peers.wait_for(others, time.monotonic() + PS_BACK_S, self._say)
        finally:
            publisher.close()
            self._watch.stop()
        self._generation.check()
        return self._saved, self._loss

    def _one_session(self, publisher: Publisher) -> None:
        spec, plan, training = self._spec, self._plan, self._spec.training
        self._watch.touch("connecting to the replicas and tracing the model")
        addresses = {role: self._gang.addresses[role] for role in (CHIEF, PS, WORKER)}
        current = session.Session(
            addresses,
            self._proved.user,
            spec.model.config,
            training.optimizer,
            training.learning_rate,
            self._dataset(self._saved),
            spec.seed,
        )
        self._watch.touch("restoring the newest checkpoint")
        found = self._checkpoints.restore(current.restore)
        start = int(found.values["step"]) if found else 0
        if found:
            self._say(f"going on from step {start} of {plan.steps}")
            self._saved, self._loss = start, found.values.get("loss")
        meter = Meter(plan.steps, plan.train_examples, training.batch_size, start)

        def fetch(result: Any) -> float:
            loss = current.fetch(result)
            self._watch.touch("training")
            if publisher.stop_reason:
                raise publisher.stop_reason
            return loss

        def report(progress: Any) -> None:
            self._say(progress.line())
            publisher.put(progress)

        def save(step: int) -> None:
            self._watch.touch("writing a checkpoint")
            if meter.pending and step == plan.steps:
                report(meter.report())
            self._loss = meter.mean_loss
            self._checkpoints.save(step, lambda prefix: current.save(prefix, step), {"loss": self._loss})
            self._saved = step

        loop.run(current.schedule, fetch, spec.gang.workers, plan.steps, training.checkpoint_every_steps, meter, report, save)

    def _dataset(self, start: int) -> Callable[[], Any]:
        spec, plan, threads = self._spec, self._plan, self._worker_threads()
        # From `start` on in another order: a resumed run must not see the first examples twice as often.
        seed = spec.seed + start

        def dataset() -> Any:
            return read_shards(
                plan.names(),
                plan.features,
                spec.training.batch_size,
                seed=seed,
                repeat=True,
                transform=self._proved.records.transform,
                threads=threads,
            )

        return dataset

    def _worker_threads(self) -> int:
        """The worker's CPU limit, which the chief knows from the spec: it traces what runs there."""
        cpu = self._spec.slot.cpu
        cores = float(cpu[:-1]) / 1000 if cpu.endswith("m") else float(cpu)
        return max(1, round(cores * self._spec.gang.worker_slots))

    def _publish(self, document: Mapping[str, Any]) -> None:
        try:
            self._generation.check()
        except SupersededError as error:
            raise Stop(error) from error
        self._context.data.put_json(keys.progress(self._spec.run), document)
