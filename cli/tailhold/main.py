"""The command line: each command imports only what it needs."""

import sys
import time
from enum import StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tailhold import __version__
from tailhold.load import load

app = typer.Typer(
    help="A RAG service on Kubernetes: one RagPipeline becomes pods that answer from your documents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
index_app = typer.Typer(help="Build and verify index snapshots, delete documents.", no_args_is_help=True)
app.add_typer(index_app, name="index")
audit_app = typer.Typer(help="Verify and read audit records.", no_args_is_help=True)
app.add_typer(audit_app, name="audit")


def _examples(*lines: str) -> str:
    """What a command's help ends with; each line can be pasted."""
    return "\n\n".join(("Example:", *lines))


class Output(StrEnum):
    """How a command prints."""

    TEXT = "text"
    JSON = "json"


_STOPPED = 130
"""What a shell calls the end by Ctrl-C; typer makes a SystemExit with it of a KeyboardInterrupt."""
_CLAIMS, _PAGE = "~/.cache/tailhold/claims", "sect.apt-get.html"
"""Of examples."""
_USERS = frozenset({
    "LocalError", "CommandError", "ManifestError", "NotReadyError", "AskError", "StartError", "ServeFailedError",
    "LoadError", "DeletionError", "GivenError",
})  # fmt: skip
"""By name: what they are defined in is imported by the command that raises them alone."""
Name = Annotated[str, typer.Option(help="The local cluster's name; several can run side by side.")]


def main() -> None:
    """Run the command; a user's mistake ends in one line and code 1, never in a traceback."""
    _print_any_name()
    try:
        app()
    except Exception as error:
        if not _is_users(error):
            raise
        print(f"error: {_words(error)}", file=sys.stderr)
        sys.exit(1)
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != _STOPPED:
            raise
        print("stopped; run the same command again to go on", file=sys.stderr)
        sys.exit(_STOPPED)


def _is_users(error: Exception) -> bool:
    """Errors whose text is meant for the user: they name what is wrong and the next step."""
    is_named = not _USERS.isdisjoint(each.__name__ for each in type(error).__mro__)
    return is_named or (isinstance(error, OSError) and error.filename is not None)


def _words(error: Exception) -> str:
    """A file or folder that the system refuses is named with its reason."""
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)


def _print_any_name() -> None:
    """Names of files may be bytes that are no text."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


@app.command(epilog=_examples("tailhold up", "tailhold up --context kind-mine"))
def up(
    name: Name = "demo",
    context: Annotated[
        str | None,
        typer.Option(help="Use this context of your kubeconfig (kind, minikube, a real one) instead."),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, max=2, help="Nodes of the local cluster.")] = 1,
    gpus: Annotated[int, typer.Option(min=0, help="Stand-in GPUs on each node of the local cluster.")] = 2,
    slot: Annotated[int | None, typer.Option(help="Address range of the local cluster, 0 to 9.")] = None,
) -> None:
    """Start a local Kubernetes with Tailhold installed, or install Tailhold on your own cluster."""
    from tailhold import provision
    from tailhold.closing import print_next_steps
    from tailhold.steps import Steps

    console = Console()
    if context:
        provision.own_cluster(Steps(console), context)
        return
    cluster, _ = provision.local_cluster(Steps(console), name, nodes=nodes, gpus=gpus, slot=slot)
    example = provision.ROOT / "examples" / "ragpipeline.yaml"
    stop = f"tailhold down --name {name}"
    print_next_steps(console, cluster, f"kubectl apply -f {example}", "kubectl get ragp -o wide", stop)


@app.command(epilog=_examples("tailhold down --purge"))
def down(
    name: Name = "demo",
    purge: Annotated[
        bool,
        typer.Option("--purge", help="Remove what the next start would use again, too: programs, images, indexes."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --purge: do not ask.")] = False,
) -> None:
    """Stop a local cluster; no process, mount, interface or firewall rule of it is left.

    Programs, images, models, documents and indexes are kept for the next start, in ~/.cache/tailhold; --purge says how
    large they are and removes them, unless another local cluster runs.
    """
    if purge:
        from tailhold.purge import purge as run

        run(Console(), name, sure=lambda: yes or typer.confirm("Remove all of this?"))
        return
    import tailhold_local

    tailhold_local.down(name)


@app.command(epilog=_examples("tailhold status"))
def status(name: Name = "demo") -> None:
    """What runs of a local cluster, on which ports, and where its logs are."""
    import tailhold_local
    from tailhold_local.__main__ import describe

    print(describe(tailhold_local.status(name)))


@app.command(epilog=_examples("tailhold serve examples/ragpipeline.yaml --port 8080 --internal-port 8081"))
def serve(
    manifest: Annotated[Path | None, typer.Argument(help="A file with a RagPipeline.")] = None,
    pod: Annotated[Path | None, typer.Option(help="In a pod: the pod part.")] = None,
    content: Annotated[Path | None, typer.Option(help="In a pod: the content part.")] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; without it loopback alone, in a pod all.")
    ] = None,
    port: Annotated[int, typer.Option(help="Port for clients.")] = 8000,
    internal_port: Annotated[int, typer.Option(help="Port for probes and metrics.")] = 8001,
    grpc_port: Annotated[int, typer.Option(help="Port for clients of gRPC.")] = 9000,
    otlp: Annotated[
        str | None, typer.Option(help="Send traces to this collector, as http://127.0.0.1:4318 (OTLP over HTTP).")
    ] = None,
) -> None:
    """Serve a RagPipeline here, without a cluster: the same program that the pods run.

    What lies in claims and Secrets in a cluster lies in folders here, each of its name, below ~/.cache/tailhold/claims
    and ~/.cache/tailhold/secrets, or what TAILHOLD_CLAIMS and TAILHOLD_SECRETS name: a key of `server.auth` is the file
    secrets/NAME/CLIENT, a certificate of `server.tls` secrets/NAME/tls.crt and tls.key.
    """
    from tailhold.serve import serve as run

    everywhere = "0.0.0.0"  # noqa: S104  a pod is reached from outside
    address = host or ("127.0.0.1" if manifest else everywhere)
    ports = {"port": port, "internal_port": internal_port, "grpc_port": grpc_port}
    sys.exit(run(manifest, pod=pod, content=content, host=address, **ports, otlp=otlp))


@app.command(epilog=_examples("tailhold validate examples/ragpipeline.yaml"))
def validate(
    files: Annotated[
        list[Path],
        typer.Argument(help="Files with RagPipelines, `-` for standard input; other objects are passed over."),
    ],
) -> None:
    """Check manifests without a cluster, by the same schema and rules as the API server.

    Every fault is named with its field, its value and what is allowed; the exit code is 1 where there are any.
    """
    from tailhold.manifest import ManifestError, read_manifests

    faulty = False
    for path in files:
        try:
            found = read_manifests(path)
        except ManifestError as error:
            faulty = True
            print(error, file=sys.stderr)
        else:
            faulty = faulty or not found
            print(f"{path}: {', '.join(each.name for each in found)}: in order" if found else f"{path}: no RagPipeline")
    sys.exit(faulty)


@app.command(epilog=_examples("tailhold new one-gpu --name handbook > ragpipeline.yaml"))
def new(
    profile: Annotated[str, typer.Argument(help="cpu, one-gpu, pinned-low-latency or long-context.")],
    name: Annotated[str, typer.Option(help="The pipeline's name.")] = "docs",
) -> None:
    """Print a commented manifest to start from: `tailhold new one-gpu > ragpipeline.yaml`."""
    from tailhold.profiles import render_profile

    try:
        print(render_profile(profile, name), end="")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@app.command(epilog=_examples("tailhold plan -f new.yaml --against old.yaml"))
def plan(
    file: Annotated[Path, typer.Option("-f", "--file", help="The manifest that you are about to apply.")],
    against: Annotated[
        Path | None, typer.Option(help="Compare with this file; without it, with the live object.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of your kubeconfig; the current one without it.")] = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="For people, or for programs.")] = Output.TEXT,
) -> None:
    """Say what an edit will change and restart, the room it needs, and how to undo it. Nothing is applied."""
    import json

    from tailhold.plan import plan as run
    from tailhold.plan import rendered
    from tailhold.provision import user_target
    from tailhold.target import UnreachableError

    try:
        said = run(file, against, None if against else user_target(context))
    except UnreachableError as error:
        raise UnreachableError(f"{error}\nWithout a cluster: --against FILE, the manifest as it was before") from error
    print(json.dumps(said, indent=2) if output is Output.JSON else "\n".join(rendered(said)))


@app.command(epilog=_examples("tailhold inspect examples/ragpipeline.yaml"))
def inspect(
    manifest: Annotated[Path | None, typer.Argument(help="A file with a RagPipeline.")] = None,
    claims: Annotated[
        Path | None, typer.Option(help="Folder with a folder for each claim; without it what `serve` uses.")
    ] = None,
    part: Annotated[Path | None, typer.Option(help="In the inspection Job: what to look at.")] = None,
) -> None:
    """Look at the models of a RagPipeline and add up the memory that a pod takes; nothing is loaded or started.

    Facts come from configs, tokenizers and the headers of safetensors. The exit code is 1 where something does not fit.
    """
    from tailhold.inspection import by_hand, in_job

    if part:
        sys.exit(in_job(part))
    if manifest is None:
        raise typer.BadParameter("name a manifest, as in `tailhold inspect examples/ragpipeline.yaml`")
    sys.exit(by_hand(manifest, claims))


@app.command(epilog=_examples('tailhold ask --url http://127.0.0.1:8000/v1 --trace "How do I add a user to a group?"'))
def ask(
    question: Annotated[str, typer.Argument(help="What you want to know.")],
    url: Annotated[
        str | None,
        typer.Option(help="Where the pipeline is served, ending in /v1.", show_default="http://127.0.0.1:8000/v1"),
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer.")] = None,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="TAILHOLD_API_KEY", show_envvar=True, help="Your key or token; better in the variable."),
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="PEM file of the authority of the server's certificate.", dir_okay=False)
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Show where the time went, stage by stage.")] = False,
) -> None:
    """Ask a served pipeline; the answer streams, sources and the time of each stage follow."""
    from tailhold.ask import DEFAULT_URL, Endpoint
    from tailhold.asking import print_answer

    endpoint = Endpoint(url or DEFAULT_URL, api_key, ca_file, is_default=url is None)
    print_answer(Console(), endpoint, question, max_tokens, trace=trace)


app.command(epilog=_examples("tailhold load --rate 0.5 --duration 1m -o report"))(load)


@app.command(epilog=_examples("tailhold demo", "tailhold demo --down"))
def demo(
    down: Annotated[
        bool, typer.Option("--down", help="Stop the demo; caches stay, see `tailhold down --purge`.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Use the complete server image; slow to build.")] = False,
) -> None:
    """The whole product on this machine: a cluster, the operator, one RagPipeline, three questions."""
    from tailhold import walkthrough

    if down:
        walkthrough.stop(Console())
    else:
        walkthrough.run(Console(), full=full)


@index_app.command("build", epilog=_examples("tailhold index build --build build.json --progress-port 8001"))
def index_build(
    build: Annotated[Path, typer.Option(help="The build part, as the operator wrote it.")],
    progress_port: Annotated[int | None, typer.Option(help="Port for GET /progress.")] = None,
) -> None:
    """Read the corpus, cut, embed, and publish a snapshot: what the index Job runs."""
    from tailhold.index import build as run

    sys.exit(run(build, progress_port))


@index_app.command("verify", epilog=_examples(f"tailhold index verify {_CLAIMS}/snapshots/snapshots/0f3c..."))
def index_verify(
    folder: Annotated[Path, typer.Argument(help="A snapshot's folder, named by its digest.")],
) -> None:
    """Check a snapshot against its manifest and its name."""
    from tailhold.index import verify

    sys.exit(verify(folder))


_STORE = Annotated[Path, typer.Argument(help="The folder of the claim that `index.store` names.")]
_SOURCE = Annotated[str, typer.Argument(help="Name of the corpus source, as in `corpus.sources`.")]
_DOCUMENT = Annotated[str, typer.Argument(help="Path of the document within it.")]


@index_app.command("delete", epilog=_examples(f"tailhold index delete {_CLAIMS}/snapshots handbook {_PAGE}"))
def index_delete(
    store: _STORE,
    source: _SOURCE,
    document: _DOCUMENT,
    also_if_absent: Annotated[
        bool,
        typer.Option("--also-if-absent", help="Also where no snapshot holds it: it is deleted should it come later."),
    ] = False,
) -> None:
    """Delete a document from all snapshots of a volume, older ones that come back and those to come included."""
    from tailhold.deletion import delete

    sys.exit(delete(store, source, document, time.time(), also_if_absent=also_if_absent))


@index_app.command("deleted", epilog=_examples(f"tailhold index deleted {_CLAIMS}/snapshots"))
def index_deleted(store: _STORE) -> None:
    """List what was deleted, and when."""
    from tailhold.deletion import deleted

    sys.exit(deleted(store))


@index_app.command(
    "restore",
    epilog=_examples(
        "tailhold index restore ~/.cache/tailhold/claims/snapshots handbook sect.apt-get.html sect.apt-get.html"
    ),
)
def index_restore(
    store: _STORE,
    source: _SOURCE,
    document: _DOCUMENT,
    file: Annotated[Path, typer.Argument(help="The version that is wanted again, as it is in the corpus.")],
) -> None:
    """Let one version of a deleted document be found again, and no other."""
    from tailhold.deletion import restore

    sys.exit(restore(store, source, document, file))


@audit_app.command("verify", epilog=_examples("tailhold audit verify /mnt/audit/answers --pipeline team/handbook"))
def audit_verify(
    folder: Annotated[Path, typer.Argument(help="The claim's folder, or one of a pipeline or a pod in it.")],
    head: Annotated[
        list[str] | None,
        typer.Option(help="SEQ:HASH or POD=SEQ:HASH, seen elsewhere: a chain that ends before it was cut."),
    ] = None,
    pipeline: Annotated[
        str | None, typer.Option(help="NAME or NAMESPACE/NAME: take the heads from the status of this RagPipeline.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of your kubeconfig, with --pipeline.")] = None,
) -> None:
    """Find any change, gap, repetition or cut in audit records, with file and line.

    Exit codes: 0 intact; 1 not intact; 3 intact but for a last line that a killed process did not finish.
    """
    from tailhold.audit import verify
    from tailhold.provision import user_target

    sys.exit(verify(folder, head or (), pipeline or "", user_target(context) if pipeline else None))


@audit_app.command("show", epilog=_examples("tailhold audit show /mnt/audit/answers --client desk-7"))
def audit_show(
    folder: Annotated[Path, typer.Argument(help="The claim's folder, or one of a pipeline or a pod in it.")],
    request: Annotated[str, typer.Option(help="Only what has this id, as in `chatcmpl-...` and `search-...`.")] = "",
    client: Annotated[str, typer.Option(help="Only what this client did.")] = "",
    output: Annotated[Output, typer.Option("-o", "--output", help="A line each, or whole records.")] = Output.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="The same as `-o json`.")] = False,
) -> None:
    """Print a line for each answer, search and document that was recorded. Nothing is verified.

    CITED has the beginnings of passages' keys: `/v1/sources/KEY` shows them. Exit code 1 where nothing fits.
    """
    import json

    from tailhold.audit_records import HEADING, line, show, summary

    is_first = True
    for each in show(folder, request, client):
        if output is Output.JSON or as_json:
            print(json.dumps(each, ensure_ascii=False))
            continue
        if is_first:
            print(line(HEADING))
        is_first = False
        print(line(summary(each)))


if __name__ == "__main__":
    main()
