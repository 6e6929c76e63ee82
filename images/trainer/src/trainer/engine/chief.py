"""A run's chief: proves the model, waits for the peers, trains, saves, and tells the peers when it is done.

Its good end leaves ``result.json`` in the current directory, which its supervisor publishes, and the file DONE with every peer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from trainer import code
from trainer.data.reading import read_shards
from trainer.engine import anew, loop, peers, proof, runtime, session
from trainer.engine import plan as plans
from trainer.engine.checkpoints import Checkpoints
from trainer.engine.generation import Generation
from trainer.engine.progress import Meter, Publisher, Stop
from trainer.engine.stall import Watch
from trainer.environment import CHIEF, PS, WORKER, Gang
from trainer.errors import SupersededError
from trainer.steps.context import Context
from trainer.storage import keys
from trainer.storage.objects import encode

RESULT: Final = Path("result.json")
PS_BACK_S: Final = 120.0
"""How long a lost PS may take to come back: its supervisor restarts it in place in seconds, Kubernetes a pod within a minute or so."""


def run(context: Context, gang: Gang, threads: int, say: Callable[[str], None]) -> None:
    """Trains the run to its last step.

    Raises:
        UserError, DataError, DivergedError, SupersededError: a retry ends the same way.
        PeersMissingError, StorageError: it may not.

    After a lost PS the process starts itself anew and is here again, from the newest checkpoint on.
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
    lost = anew.Losses.read()
    peers.wait_for(others, began + (PS_BACK_S if lost.count else spec.training.start_deadline_s), say)
    presence.close()

    training = _Training(context, gang, plan, proved, generation, say)
    try:
        step, loss = training.run()
    except session.PsLost as error:
        say(f"a parameter server is lost ({error}); going on from the newest checkpoint when it is back")
        anew.start(lost.another(training.saved, str(error)))
    RESULT.write_bytes(encode({"checkpoint_step": step, "loss": loss}))
    untold = session.say_done(gang.addresses, json.dumps({"generation": gang.generation, "step": step}))
    say(f"done: step {step}" + (f"; could not be told: {', '.join(untold)}" if untold else ""))


class _Training:
    """From the first connection to the last checkpoint."""

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
        self.saved = 0
        """The newest checkpoint's step."""
        self._loss: float | None = None
        """Mean loss of the last report, kept in the checkpoint for a chief that finds nothing left to do."""

    def run(self) -> tuple[int, float | None]:
        """Trains to the last step; the last checkpoint's step and the loss there.

        Raises:
            PsLost: the variables of a parameter server are gone.
        """
        publisher = Publisher(self._publish, self._say)
        try:
            self._train(publisher)
        finally:
            publisher.close()
            self._watch.stop()
        self._generation.check()
        return self.saved, self._loss

    def _train(self, publisher: Publisher) -> None:
        spec, plan, training = self._spec, self._plan, self._spec.training
        self._watch.touch("connecting to the replicas and tracing the model")
        addresses = {role: self._gang.addresses[role] for role in (CHIEF, PS, WORKER)}
        current = session.Session(
            addresses,
            self._proved.user,
            spec.model.config,
            training.optimizer,
            training.learning_rate,
            spec.seed,
        )

        def read(prefix: str) -> int:
            self._watch.touch("restoring the newest checkpoint")
            step = current.restore(prefix)
            self._watch.rest("looking for another checkpoint")
            return step

        self._watch.rest("fetching the newest checkpoint")
        found = self._checkpoints.restore(read)
        self._watch.touch("tracing the dataset")
        start = int(found.values["step"]) if found else 0
        if found:
            self._say(f"going on from step {start} of {plan.steps}")
            self.saved, self._loss = start, found.values.get("loss")
        current.feed(self._dataset(start))
        meter = Meter(plan.steps, plan.train_examples, training.batch_size, start)

        def fetch(result: Any) -> float | None:
            loss = current.fetch(result)
            self._watch.touch("training")
            if publisher.stop_reason:
                raise publisher.stop_reason
            return loss

        def report(progress: Any) -> None:
            self._say(progress.line())
            publisher.put(progress)

        def save(step: int) -> None:
            def write(prefix: str) -> None:
                self._watch.touch("writing a checkpoint")
                current.save(prefix, step)
                self._watch.rest("uploading a checkpoint")

            if meter.pending and step == plan.steps:
                report(meter.report())
            self._loss = meter.mean_loss
            self._checkpoints.save(step, write, {"loss": self._loss})
            self._watch.touch("training")
            self.saved = step

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
