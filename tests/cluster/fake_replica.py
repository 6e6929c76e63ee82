"""A replica without TensorFlow, run in a pod as ``python3 -c <this text> <behaviour>``: it keeps the contract in S3 and does as it is told.

The behaviour is JSON: ``{"say": [lines], "seconds": n, "exit": code, "only": index, "eat": MiB, "ignore_result": true, "meet": true}``.
A chief writes the result of its generation when its seconds are over; a PS or worker ends when that result appears. With ``meet`` each
listens on its address, and the chief goes on only when it has been at all the others. Nothing but Python is needed in the image: S3 is
reached by links, one for each generation, under ``links``.
"""

import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request


def put(link: str, value: object) -> None:
    data = json.dumps(value).encode()
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(link, data=data, method="PUT"), timeout=10).close()
            return
        except OSError as problem:  # a new pod's network may refuse everything for a second
            print("not yet:", problem, flush=True)
            time.sleep(0.3)


def exists(link: str) -> bool:
    try:
        urllib.request.urlopen(link, timeout=10).close()
        return True
    except (urllib.error.HTTPError, OSError):
        return False


def listen(address: str) -> socket.socket:
    return socket.create_server(("", int(address.rsplit(":", 1)[1])))


def meet(addresses: dict) -> None:
    """Connect to every replica by the address that the gang has for it."""
    for address in (address for role in addresses.values() for address in role):
        host, port = address.rsplit(":", 1)
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=3).close()
                break
            except OSError as problem:
                print("not yet:", address, problem, flush=True)
                time.sleep(0.3)
    print("met all", flush=True)


def main() -> int:
    behaviour = json.loads(sys.argv[1])
    links = behaviour["links"]
    role, index = os.environ["TRAINYARD_ROLE"], int(os.environ.get("JOB_COMPLETION_INDEX", "0"))
    replica = f"{role}-{index}"
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    gang = json.loads(os.environ["TRAINYARD_GANG"])
    link = links[str(gang["generation"])]
    if behaviour.get("only") not in (None, index):
        behaviour = {"say": behaviour.get("say", [])}
    print(f"{replica} of generation {gang['generation']} at {gang['addresses'][role][index]}", flush=True)
    for line in behaviour.get("say", []):
        print(line, flush=True)
    if behaviour.get("meet"):
        door = listen(gang["addresses"][role][index])  # noqa: F841 - open as long as we live
        if role == "chief":
            meet(gang["addresses"])
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
            numbers = {"checkpoint_step": 70, "loss": 0.5}
            if not behaviour.get("silent"):
                put(link["put"], {"version": 1, "exit_code": code, "reason": word, "message": "as told"} | numbers)
            print(f"{replica} ends with {code}", flush=True)
            return code
        if role != "chief" and over and "exit" in behaviour:
            print(f"{replica} ends with {behaviour['exit']}", flush=True)
            return behaviour["exit"]
        if role != "chief" and not behaviour.get("ignore_result") and exists(link["get"]):
            print(f"{replica} saw the end", flush=True)
            return 0
        time.sleep(0.2)


sys.exit(main())
