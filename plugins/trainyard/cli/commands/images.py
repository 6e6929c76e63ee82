"""``trainyard images build``: the container images of this checkout, for a cluster and its registry."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trainyard.cli import places
from trainyard.cli.docker import Docker, Line
from trainyard.cli.image_builds import DEFAULT_BASE, KINDS, content_tag, plan
from trainyard.cli.invoking import JsonOption
from trainyard.cli.output import Output, seconds, size
from trainyard.errors import ConfigError

MOST_SHOWN = 140
"""Characters of a step: what a Dockerfile's RUN says may be a page."""

images = typer.Typer(name="images", help="Container images of Trainyard's own pods.", no_args_is_help=True)


@images.command()
def build(
    push: Annotated[
        str | None,
        typer.Option("--push", metavar="REGISTRY", help="Push to this registry too, as localhost:5000 or registry.example.org/team."),
    ] = None,
    tag: Annotated[
        str | None, typer.Option("--tag", metavar="TAG", help="Default: the version and a digest of all that goes into the images.")
    ] = None,
    base: Annotated[
        str, typer.Option("--base", metavar="IMAGE", help="Python image that both stand on; one of your own for your authorities.")
    ] = DEFAULT_BASE,
    only: Annotated[str | None, typer.Option("--only", metavar="NAME", help="`trainer` or `airflow`.")] = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="The trainer with TensorFlow for NVIDIA's GPUs: several gigabytes.")] = False,
    network: Annotated[
        str, typer.Option("--network", metavar="NAME", help="Network of the build; `host` reaches what this machine reaches.")
    ] = "host",
    as_json: JsonOption = False,
) -> None:
    """Build the trainer's and Airflow's image from this checkout.

    Needs Docker. Packages come from where pip of this machine gets them (PIP_INDEX_URL, pip.conf); nothing of that is left in the images.
    """
    out = Output(as_json=as_json)
    if only is not None and only not in KINDS:
        raise ConfigError(f"--only {only}: there are {' and '.join(KINDS)}")
    root = places.need_checkout("building images")
    chosen = plan(root, registry=push, tag=tag or content_tag(root, base), base=base, only=only, gpu=gpu, network=network)
    docker = Docker.found()
    built: list[dict[str, Any]] = []
    for image in chosen:
        steps = _Steps(out, image.kind)
        took = docker.run(image.build_words(), steps, image.environment)
        facts: dict[str, Any] = {
            "image": image.kind,
            "reference": image.reference,
            "seconds": round(took, 1),
            "bytes": docker.bytes_of(image.reference),
            "packed_bytes": None,
            "code_bytes": None,
        }
        steps.done(f"{image.reference}  {seconds(took)}")
        if push:
            steps = _Steps(out, f"{image.kind} push")
            took = docker.run(["push", image.reference], steps)
            layers = docker.packed_layers(image.reference)
            facts |= {"packed_bytes": sum(layers), "code_bytes": layers[-1]}
            steps.done(seconds(took))
        out.document(facts)
        built.append(facts)
    columns = ["image", "reference", "size", "packed", "our code, packed"]
    rows = [[f["image"], f["reference"], size(f["bytes"]), size(f["packed_bytes"]), size(f["code_bytes"])] for f in built]
    out.table(columns, rows)
    if push:
        out.remark("in the cluster's profile:  images: {" + ", ".join(f"{f['image']}: {f['reference']}" for f in built) + "}")
    else:
        out.remark("they are on this machine only: `--push REGISTRY` sends them where the cluster's nodes get theirs")


class _Steps:
    """Shows how far a build or push has come: one line that is renewed on a terminal, one line a step elsewhere."""

    def __init__(self, out: Output, what: str) -> None:
        self._out = out
        self._what = what
        self._place = ""
        self._moving = out.console.is_terminal and not out.as_json

    def __call__(self, line: Line) -> None:
        text = " ".join(line.text.split())
        if line.step is not None:
            self._place = f"{line.step}/{line.steps}  "
            self._out.document({"event": "step", "image": self._what, "step": line.step, "steps": line.steps, "text": text})
        shown = f"  … {self._what} {self._place}{text}"
        if self._moving:
            self._out.console.file.write("\r\x1b[2K" + shown[: max(20, self._out.console.width - 1)])
            self._out.console.file.flush()
        elif line.step is not None:
            self._out.line(shown if len(shown) <= MOST_SHOWN else f"{shown[: MOST_SHOWN - 2]} …")

    def done(self, text: str) -> None:
        if self._moving:
            self._out.console.file.write("\r\x1b[2K")
        self._out.line(f"  ✓ {self._what}  {text}")
