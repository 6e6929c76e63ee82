"""One line out of TensorFlow's "Graph execution error", which buries what went wrong below pages of its own frames."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from trainer import code

_FRAME: Final = re.compile(r'^\s*File "([^"]+)", line (\d+)')
_NOISE: Final = re.compile(
    r"^\s*(Graph execution error:|Detected at node|\d+ root error\(s\) found|\d+ (successful operations|derived errors)|File \"|"
    r"\[\[\{\{node|\[\[.*\]\]$|Additional GRPC error|:UNKNOWN:|$)"
)
_ORDINAL: Final = re.compile(r"^\s*\(\d+\)\s*[A-Z_]+:\s*")
MOST: Final = 400
"""Characters of a message: some hold whole tensors."""


def told(error: BaseException) -> str:
    """``digits_model/model.py:12: InvalidArgumentError: …``; the place is the innermost line of the user's own code, where there is one."""
    place, message = "", ""
    for line in str(error).splitlines():
        frame = _FRAME.match(line)
        if frame:
            if code.is_user_file(frame.group(1)):
                place = f"{_short(frame.group(1))}:{frame.group(2)}: "
            continue
        text = _ORDINAL.sub("", line)
        if not message and not _NOISE.match(text):
            message = text.split(" [[{{node")[0].strip()[:MOST]
    return f"{place}{type(error).__name__}: {message or 'TensorFlow gives no reason'}"


def is_graph_error(error: BaseException) -> bool:
    """Whether ``told`` knows its form."""
    return "Graph execution error" in str(error)


def _short(path: str) -> str:
    """Without the folder that a package is unpacked into: ``…/code/<digest>/package/module.py``."""
    parts = Path(path).parts
    digest = next((index for index, part in enumerate(parts) if len(part) == 64), -1)
    return str(Path(*parts[digest + 1 :]))
