"""Steps with a timer: a live line on a terminal, one line per step elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console


class Steps:
    """Prints what is being done and how long it took."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.times: list[tuple[str, float]] = []
        """Each step that ended, with its seconds."""

    @contextmanager
    def step(self, name: str) -> Iterator[Callable[[str], None]]:
        """Time a step; call what is given with a few words on where it stands."""
        start = time.monotonic()
        with self.console.status(name) as live:

            def note(words: str) -> None:
                line = f"{name}: {words} ({time.monotonic() - start:.0f} s)"
                if self.console.is_terminal:
                    live.update(line, spinner="dots")
                else:
                    self.console.print(f"    {line}", highlight=False, markup=False, soft_wrap=True)

            yield note
        seconds = time.monotonic() - start
        self.times.append((name, seconds))
        self.console.print(f"  {name:<44}{seconds:6.1f} s", highlight=False, markup=False)
