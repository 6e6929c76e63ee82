"""A replica without TensorFlow, run in a pod as ``python -c <this text> <behaviour>``: it keeps the contract in S3 and does as it is told.

The behaviour is JSON: ``{"say": [lines], "seconds": n, "exit": code, "only": index, "eat": MiB, "ignore_result": true}``. A chief writes
the result of its generation when its seconds are over; a PS or worker ends when that result appears.
"""

import json
import os
import signal
import sys
import time


def main() -> int:
    behaviour = json.loads(sys.argv[1])
    role, index = os.environ["TRAINYARD_ROLE"], int(os.environ.get("JOB_COMPLETION_INDEX", "0"))
    replica = f"{role}-{index}"
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    spec = json.loads(os.environ["TRAINYARD_RUN_SPEC"])
    gang = json.loads(os.environ["TRAINYARD_GANG"])
    root = f"runs/{spec['run']}/"
    result_key = f"{root}generations/{gang['generation']}/result.json"
    if behaviour.get("only") not in (None, index):
        behaviour = {"say": behaviour.get("say", [])}
    print(f"{replica} of generation {gang['generation']} at {gang['addresses'][role][index]}", flush=True)
    for line in behaviour.get("say", []):
        print(line, flush=True)
    import boto3
    from botocore.config import Config

    s3 = boto3.client(
        "s3", endpoint_url=spec["storage"]["endpoint"], region_name="us-east-1", config=Config(s3={"addressing_style": "path"})
    )
    bucket = spec["storage"]["bucket"]

    def put(key: str, value: object) -> None:
        s3.put_object(Bucket=bucket, Key=key, Body=json.dumps(value).encode())

    def has(key: str) -> bool:
        try:
            s3.head_object(Bucket=bucket, Key=key)
            return True
        except s3.exceptions.ClientError:
            return False

    began = time.monotonic()
    hoard = []
    while True:
        passed = time.monotonic() - began
        if behaviour.get("eat"):
            hoard.append(bytearray(os.urandom(1024)) * 1024 * behaviour["eat"])
        over = behaviour.get("seconds") is not None and passed >= behaviour["seconds"]
        if role == "chief" and over:
            code = behaviour.get("exit", 0)
            word = "Ok" if code == 0 else "Failed"
            if not behaviour.get("silent"):
                put(result_key, {"version": 1, "exit_code": code, "reason": word, "message": "as told", "checkpoint_step": 70, "loss": 0.5})
            print(f"{replica} ends with {code}", flush=True)
            return code
        if role != "chief" and over and "exit" in behaviour:
            print(f"{replica} ends with {behaviour['exit']}", flush=True)
            return behaviour["exit"]
        if role != "chief" and not behaviour.get("ignore_result") and has(result_key):
            print(f"{replica} saw the end", flush=True)
            return 0
        time.sleep(0.2)


sys.exit(main())
