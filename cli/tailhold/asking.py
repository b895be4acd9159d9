"""An answer as a person reads it."""

from rich.console import Console

from tailhold.ask import Answer, Endpoint, ask


def print_answer(console: Console, endpoint: Endpoint, question: str, max_tokens: int | None) -> Answer:
    """Ask, print the text as it streams, then sources (cited ones marked) and the time of each stage."""
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
    stages = "  ".join(f"{name} {milliseconds:.0f}" for name, milliseconds in answer.stages.items())
    console.print(f"  milliseconds: {stages}", markup=False, style="dim", soft_wrap=True)
    return answer
