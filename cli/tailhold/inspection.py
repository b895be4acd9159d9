"""`tailhold inspect`: what a spec's models and image are, and whether they fit, without a cluster or in the Job."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from tailhold.ending import failed, write_ending
from tailhold.given import GivenError, read_given
from tailhold.local_index import chunks_there
from tailhold.manifest import read_manifest
from tailhold.places import here
from tailhold_api import names
from tailhold_api.codec import dump, load
from tailhold_api.conditions import Reason
from tailhold_api.fit import misfits
from tailhold_api.inspection import Inspection, InspectionPart, inspection_part
from tailhold_api.memory import memory_sums, rendered
from tailhold_api.parts import pod_part
from tailhold_api.spec import Spec
from tailhold_server.delivery.trust import trust
from tailhold_server.errors import StartError
from tailhold_server.inspection.look import inspect


def in_job(part_file: Path, env: Mapping[str, str] = os.environ) -> int:
    """Look at what an InspectionPart names; what was found goes to the termination log. Returns the exit code.

    1 where trying again may help by itself, 2 where files have to be mended first.
    """
    try:
        trust()
        found = _look(load(InspectionPart, read_given(part_file)), env)
    except GivenError as error:
        return _fail(env, StartError(Reason.INVALID_SPEC, str(error), final=False))
    except (OSError, ValidationError) as error:
        return _fail(env, StartError(Reason.INVALID_SPEC, f"{part_file}: {error}", final=False))
    except StartError as error:
        return _fail(env, error)
    print(dump(found), flush=True)
    write_ending(env, dump(found))
    return 0


def by_hand(manifest: Path, claims: Path | None) -> int:
    """The same for a manifest on this machine, for people. Returns 1 where something does not fit."""
    wanted = read_manifest(manifest)
    here(os.environ)
    trust()
    where = claims or Path(os.environ["TAILHOLD_CLAIMS"])
    part = inspection_part(pod_part(wanted.name, wanted.spec), wanted.spec.server.image or "")
    found = _look(part, {**os.environ, "TAILHOLD_CLAIMS": str(where)})
    chunks = chunks_there(wanted.spec, wanted.rebuild, where)
    faults = misfits(wanted.spec, found, chunks)
    print("\n".join((*_facts(found), *_sums(wanted.spec, found, chunks))))
    for each in faults:
        print(f"{each.reason.value}: {each.message}", file=sys.stderr)
    return 1 if faults else 0


def _look(part: InspectionPart, env: Mapping[str, str]) -> Inspection:
    claims = Path(env.get("TAILHOLD_CLAIMS") or names.CLAIMS_FOLDER)
    return inspect(part, claims)


def _fail(env: Mapping[str, str], error: StartError) -> int:
    print(f"{error.reason}: {error.message}", file=sys.stderr, flush=True)
    write_ending(env, failed(error.reason, error.message))
    return 2 if error.final else 1


def _facts(found: Inspection) -> Iterator[str]:
    for title, facts in (("generator", found.generator), ("embedder", found.embedder)):
        for name, value in (facts.model_dump(by_alias=True) if facts else {}).items():
            shown = f"{value:,}" if type(value) is int else value
            yield f"{title} {name}: {shown}"
    yield f"vLLM: {found.vllm or 'not installed here'}{f' ({found.doubt})' if found.doubt else ''}"


def _sums(spec: Spec, found: Inspection, chunks: int | None) -> Iterator[str]:
    for each in memory_sums(spec, found, chunks):
        yield from rendered(each)
