"""What is kept of each answer, for whoever has to account for it later."""

from enum import StrEnum
from typing import ClassVar

from tailhold_api.fields import Model, Rule, live, restart
from tailhold_api.grammar import once
from tailhold_api.sources import ClaimFolder

_IBAN = {"name": "iban", "pattern": "[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}", "replacement": "[IBAN]"}


class AuditFolder(ClaimFolder):
    """A folder on a persistent volume claim that the serving pods may write to."""

    rules: ClassVar[tuple[Rule, ...]] = tuple(
        rule._replace(
            accepted=rule.accepted | {"claimName": "audit"},
            refused=rule.refused | {"claimName": "audit"},
        )
        for rule in ClaimFolder.rules
    )

    claim_name: str = restart(min_length=1, max_length=63, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    """The claim's name, in the pipeline's namespace. Pods on more than one node need ReadWriteMany. Give records a
    claim of their own: pods mount it writable."""


class AuditSink(Model):
    """Where records are kept."""

    pvc: AuditFolder
    """Each pod writes its own files, `<pipeline>/<pod>/<first record>-<time>.jsonl`, and waits until the disk has
    them."""


class Records(StrEnum):
    """How much of an answer is recorded."""

    DIGESTS = "Digests"
    TEXTS = "Texts"


class OnFailure(StrEnum):
    """What happens to a question whose record cannot be written."""

    REFUSE = "Refuse"
    CONTINUE = "Continue"


class Redaction(Model):
    """What is taken out of recorded texts."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!''.matches(self.pattern)",
            "`pattern` must be an expression of RE2 that does not match the empty text: RE2 has neither look-around nor"
            " back-references, and takes time in proportion to the text alone",
            _IBAN,
            _IBAN | {"pattern": "(?=[A-Z]{2})[0-9]+"},
        ),
    )

    name: str = live(min_length=1, max_length=63, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")
    """Names the entry; unique in the list."""
    pattern: str = live(min_length=1, max_length=500)
    """What is taken out: an expression of RE2, without look-around and back-references, so that no text makes it slow.
    `(?i)` at its beginning ignores case."""
    replacement: str = live("[redacted]", max_length=100)
    """What stands there instead, as it is."""


class Recording(Model):
    """What is recorded, and for how long."""

    records: Records = live(Records.DIGESTS)
    """`Digests` keeps who asked and when, revision and digests, the keys and scores of the chunks, parameters, usage,
    and SHA-256 of question, prompt and answer: no text. `Texts` keeps the client's messages and the answer too, after
    `redaction`, and takes the disk for them."""
    redaction: tuple[Redaction, ...] = live((), max_length=32)
    """Taken out of recorded texts, in this order. The hashes are those of the texts as they were sent. For `records:
    Texts` alone."""
    searches: bool = live(True)
    """Records each search through `/v1/vector_stores` and gRPC as well: who, hashes of the queries, the keys and scores
    of the passages. It waits for the disk once. Embeddings are not recorded: no document is in them."""
    files: bool = live(True)
    """Records who uploads, adds, takes out, deletes or reads which document, with an upload's SHA-256. False where
    something else does."""
    retention_days: int = live(365, ge=1, le=36500)
    """A file is deleted so many days after its last record; a record of the deletion stays in the chain. Shortening it
    deletes older files within the hour: a rollback to a revision with fewer days does so too."""
    on_failure: OnFailure = live(OnFailure.REFUSE)
    """`Refuse` answers 503 while records cannot be written, as on a full disk: nothing is given without a record.
    `Continue` answers, counts in `tailhold_audit_lost_total`, and records how many it lost as soon as it can."""


class Audit(Recording):
    """One record for each answer, chained by hashes. Off until a sink is given."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.sink) || (self.records == 'Digests' && self.redaction.size() == 0)",
            "`sink` must be given beside `records` or `redaction`: without it nothing is recorded",
            {"records": "Texts", "sink": {"pvc": {"claimName": "audit"}}},
            {"records": "Texts"},
        ),
        once(
            "redaction",
            "name",
            accepted={
                "redaction": [_IBAN, _IBAN | {"name": "card"}],
                "sink": {"pvc": {"claimName": "audit"}},
            },
            refused={"redaction": [_IBAN, _IBAN], "sink": {"pvc": {"claimName": "audit"}}},
        ),
    )

    sink: AuditSink | None = None
    """Where records are kept. Without it there are none. Each answer then waits twice for the disk: once before its
    first byte and once before its last."""

    @property
    def recording(self) -> Recording:
        """The part that running pods take without a restart."""
        return Recording(**{name: getattr(self, name) for name in Recording.model_fields})
