"""An answer as a person reads it."""

from collections.abc import Iterator

from rich.console import Console

from tailhold.ask import Answer, Endpoint, ask
from tailhold.waterfall import waterfall


def print_answer(
    console: Console, endpoint: Endpoint, question: str, max_tokens: int | None = None, *, trace: bool = False
) -> Answer:
    """Ask, print the text as it streams, then sources (cited ones marked) and the time of each stage.

    With `trace` each stage has a line and a bar, and the trace's id stands below.
    """
    answer = ask(
        endpoint,
        question,
        max_tokens=max_tokens,
        on_text=lambda text: console.print(text, end="", markup=False, highlight=False, soft_wrap=True),
    )
    console.print()
    cited = {citation.get("url_citation", {}).get("url") for citation in answer.citations}
    for source in answer.sources:
        mark = "*" if source.get("url") in cited else " "
        console.print(
            f" {mark}[{source['number']}] {source['title']}  {source['url']}", markup=False, style="dim", soft_wrap=True
        )
    for line in _times(answer, trace):
        console.print(f"  {line}", markup=False, style="dim", soft_wrap=True)
    return answer


def _times(answer: Answer, trace: bool) -> Iterator[str]:
    if not trace:
        stages = "  ".join(f"{name} {milliseconds:.0f}" for name, milliseconds in answer.stages.items())
        yield f"milliseconds: {stages}"
        return
    yield from waterfall(answer.stages)
    yield f"trace {answer.trace}" if answer.trace else "no trace: the server sends none"
