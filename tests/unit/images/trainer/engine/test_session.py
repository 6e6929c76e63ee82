"""What a lost result means: the words are TensorFlow's own, caught when a worker was killed between its closure's end and the fetch."""

from __future__ import annotations

import pytest
import tensorflow as tf

from trainer.engine.session import PsLost, _Translate, _went_with_its_worker
from trainer.errors import UserError

LOST_RESULT = """2 root error(s) found.
  (0) UNAVAILABLE: {{function_node __wrapped__Identity_device_/job:chief/replica:0/task:0/device:CPU:0}} failed to connect to all \
addresses; last error: UNKNOWN: ipv4:127.0.0.1:33295: Failed to connect to remote host: Connection refused
Additional GRPC error information from remote target /job:worker/replica:0/task:1/device:CPU:0 while calling \
/tensorflow.eager.EagerService/RunComponentFunction:
:UNKNOWN:Error received from peer  {grpc_status:14, grpc_message:"failed to connect to all addresses"}
  (1) CANCELLED: {{function_node __wrapped__Identity_device_/job:chief/replica:0/task:0/device:CPU:0}} RecvFromRemoteAsync is cancelled.
0 successful operations.
0 derived errors ignored. [Op:Identity] name: """
BACK_ALREADY = LOST_RESULT.replace("failed to connect to all addresses", "Unable to find the relevant tensor remote_handle: Op ID: 7")
PS_TOO = LOST_RESULT + "\nAdditional GRPC error information from remote target /job:ps/replica:0/task:0 while calling X:"
WRONG_LABEL = LOST_RESULT.replace(
    "failed to connect to all addresses", "Received a label value of 9 which is outside the valid range of [0, 9)"
)


@pytest.mark.parametrize(
    ("kind", "text", "gone"),
    [
        (tf.errors.UnavailableError, LOST_RESULT, True),
        (tf.errors.AbortedError, LOST_RESULT, True),
        (tf.errors.InvalidArgumentError, BACK_ALREADY, True),
        (tf.errors.UnavailableError, PS_TOO, False),
        (tf.errors.UnavailableError, "failed to connect to all addresses", False),
        (tf.errors.InvalidArgumentError, WRONG_LABEL, False),
        (tf.errors.CancelledError, LOST_RESULT, False),
    ],
)
def test_a_result_that_went_with_its_worker_is_told_from_a_lost_parameter_server(kind: type[Exception], text: str, gone: bool) -> None:
    assert _went_with_its_worker(kind(None, None, text)) is gone  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("kind", "text", "meaning"),
    [
        (tf.errors.UnavailableError, PS_TOO, PsLost),
        # A worker whose node died was replaced, and the new one was asked for what the old one held: no fault of the model.
        (tf.errors.InvalidArgumentError, "Unable to find the relevant tensor remote_handle: Op ID: 14, Output num: 0.", PsLost),
        (tf.errors.InvalidArgumentError, "Received a label value of 9 outside the valid range of [0, 9)", UserError),
    ],
)
def test_what_a_new_server_does_not_know_is_not_the_models_fault(kind: type[Exception], text: str, meaning: type[Exception]) -> None:
    with pytest.raises(meaning), _Translate(tf, "my_model:build"):
        raise kind(None, None, text)  # type: ignore[call-arg]
