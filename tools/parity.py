"""Compare jsclient with nats-server: codes of errors, headers, events, subjects of the API, and fields of structures.

    python -m tools.parity                      prints the facts that jsclient lacks without a reason; exit 1 for any
    python -m tools.parity --sources FOLDER     the same for other sources (the folder `server`), such as a new release
    python -m tools.parity --sources FOLDER --write 2.16.0     keeps their facts as data

Debian packs the sources: `python tools/private_apt.py sid FOLDER golang-github-nats-io-nats-server-dev`.
`nats_server_facts.json` holds names and numbers only, and `parity_reasons.txt` the reasons.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from jsclient import errors, jetstream
from jsclient.jetstream import advisories, tracing
from jsclient.jetstream.api import headers, models
from jsclient.protocol import ServerInfo
from jsclient.system import models as monitoring
from jsclient.system import models_server
from tools import go_names

ROOT: Final = Path(__file__).resolve().parents[1]
FACTS: Final = ROOT / "tools" / "nats_server_facts.json"
REASONS: Final = ROOT / "tools" / "parity_reasons.txt"

#: Structures of the server and the classes with the same fields.
CLASSES: Final[dict[str, type]] = {
    "ClusterInfo": jetstream.ClusterInfo,
    "ConnInfo": monitoring.ClientConnection,
    "ConsumerConfig": jetstream.ConsumerConfig,
    "ConsumerInfo": jetstream.ConsumerInfo,
    "DesiredClusterInfo": jetstream.DesiredClusterInfo,
    "DesiredClusterInfoOrigin": jetstream.DesiredClusterInfoOrigin,
    "DesiredClusterInfoStatus": jetstream.DesiredClusterInfoStatus,
    "DesiredPeerInfo": jetstream.DesiredPeerInfo,
    "ExternalStream": models.ExternalStream,
    "HealthStatus": monitoring.Health,
    "Info": ServerInfo,
    "JSInfo": monitoring.JetStreamState,
    "JetStreamConfig": monitoring.JetStreamLimits,
    "JetStreamStats": monitoring.JetStreamUse,
    "JetStreamVarz": monitoring.JetStreamPart,
    "MetaClusterInfo": monitoring.MetaGroup,
    "MsgTraceEvent": tracing.Trace,
    "MsgTraceRequest": tracing.TraceRequest,
    "PeerInfo": jetstream.PeerInfo,
    "Placement": jetstream.Placement,
    "PubAck": jetstream.PubAck,
    "ServerStats": models_server.ServerStats,
    "StreamConfig": jetstream.StreamConfig,
    "StreamInfo": jetstream.StreamInfo,
    "StreamSource": jetstream.StreamSource,
    "StreamSourceInfo": jetstream.StreamSourceInfo,
    "StreamState": jetstream.StreamState,
    "Varz": models_server.Variables,
}


def extracted(folder: Path) -> dict[str, Any]:
    """The facts of the server's sources."""
    constants = list(go_names.constants(folder))
    values = {value for _, _, value in constants}
    structures = go_names.structures(folder)
    return {
        "codes": sorted(int(value) for _, kind, value in constants if kind == "ErrorIdentifier"),
        "events": sorted(
            value for value in values if re.match(r"io\.nats\.(jetstream|server)\.(advisory|metric)", value)
        ),
        "fields": {name: sorted(_fields(name, structures)) for name in CLASSES},
        "headers": sorted(value for value in values if re.fullmatch(r"Nats(-\w+)+", value)),
        "subjects": sorted({_verb(value) for value in values if value.startswith(("$JS.API.", "$JS.EVENT."))} - {""}),
    }


def _fields(name: str, structures: dict[str, dict[str, str]]) -> Iterator[str]:
    for field, wire in structures.get(name, {}).items():
        if wire == "<embedded>":
            yield from _fields(field, structures)
        elif wire:
            yield wire


def _verb(subject: str) -> str:
    """The words of a subject before its variable tokens."""
    return re.split(r"\.?(?:%s|\*|>)", subject)[0].rstrip(".")


def missing(facts: dict[str, Any]) -> Iterator[str]:
    """The facts that jsclient lacks, one `kind name` each."""
    yield from (f"code {code}" for code in facts["codes"] if code not in errors.ApiError.registry)
    yield from (f"event {kind}" for kind in facts["events"] if kind not in advisories.KINDS)
    known = {value for value in vars(headers).values() if isinstance(value, str)}
    yield from (f"header {name}" for name in facts["headers"] if name not in known)
    for name, fields in facts["fields"].items():
        ours = {*CLASSES[name].__struct_fields__, *getattr(CLASSES[name], "__struct_encode_fields__", ())}  # type: ignore[attr-defined]
        yield from (f"field {name}.{field}" for field in fields if field not in ours)
    written = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "jsclient").rglob("*.py"))
    for subject in facts["subjects"]:
        words = subject.removeprefix("$JS.API.").removeprefix("$JS.EVENT.ADVISORY.").removeprefix("$JS.EVENT.METRIC.")
        if words not in written:
            yield f"subject {subject}"


def reasons() -> dict[str, str]:
    """`kind name` -> the reason; `*` stands for any letters."""
    lines = REASONS.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition(": ") for line in lines if line and not line.startswith("#"))
    return {name: reason for name, _, reason in pairs}


def unexplained(facts: dict[str, Any]) -> list[str]:
    """Missing facts without a reason, and reasons whose fact is not missing any more."""
    found, stated = list(missing(facts)), reasons()
    open_ = [name for name in found if not any(fnmatchcase(name, pattern) for pattern in stated)]
    idle = [name for name in stated if not any(fnmatchcase(one, name) for one in found)]
    return open_ + [f"not missing any more: {name}" for name in idle]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sources", type=Path, help="the folder of the server's package `server`")
    parser.add_argument("--write", metavar="VERSION", help="keep the facts of these sources")
    options = parser.parse_args()
    kept = json.loads(FACTS.read_text(encoding="utf-8")) if FACTS.exists() else {}
    facts = extracted(options.sources) if options.sources else kept
    if options.write:
        FACTS.write_text(json.dumps({"version": options.write, **facts}, indent=1) + "\n", encoding="utf-8")
    lacking = unexplained(facts)
    print("\n".join(lacking) or f"nothing is missing without a reason (kept facts: {kept.get('version', 'none')})")
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
