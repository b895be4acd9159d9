"""Models that are not on this machine: their configs are fetched, their weights' headers read where they are."""

import atexit
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from tailhold_api.sources import ModelSource
from tailhold_server.delivery.deliver import Places, cached, mounted, remote_of
from tailhold_server.delivery.progress import silent
from tailhold_server.delivery.remote import WEIGHTS, Remote, RemoteFile, wanted
from tailhold_server.delivery.transfer import Pace, again, transfer
from tailhold_server.inspection.weights import Stored, Weights, indexed, read_weights, weights_of
from tailhold_server.models import check_config, check_model

_TRIES = 3
"""The Job is started again by kubelet: it had better say soon what it sees."""


def model_facts(source: ModelSource, places: Places) -> tuple[Path, Weights]:
    """A folder with the model's small files, and what its weights are. Raises StartError; trying again may help."""
    folder = cached(source, places)
    remote = None if folder else remote_of(source, places)
    if remote is not None:
        return _looked_at(remote, replace(places.pace, tries=min(places.pace.tries, _TRIES)))
    folder = folder or mounted(source, places)
    check_model(folder)
    return folder, read_weights(folder)


def _looked_at(remote: Remote, pace: Pace) -> tuple[Path, Weights]:
    files = wanted(again(remote.files, pace, remote.title), remote.title)
    weights = {each.name: each for each in files if each.name.endswith(WEIGHTS)}
    folder = Path(tempfile.mkdtemp(prefix="inspected-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    transfer(remote, [each for each in files if each.name not in weights], folder, silent, pace=pace)
    check_config(folder)
    there = [name for name in weights if "/" not in name]
    return folder, weights_of(_stored(remote, weights[name], pace) for name in indexed(folder, there))


def _stored(remote: Remote, file: RemoteFile, pace: Pace) -> Stored:
    def read(start: int, end: int) -> bytes:
        return again(lambda: remote.read(file, start, end), pace, f"{file.name} of {remote.title}")

    return Stored(f"{remote.title}: {file.name}", file.size, read)
