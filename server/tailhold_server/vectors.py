"""What may go wrong with the numbers of an embedding."""


class NotFiniteError(Exception):
    """Texts whose vectors are NaN, infinite, or zero where a direction is needed."""

    def __init__(self, rows: tuple[int, ...]) -> None:
        super().__init__(f"the embedder gave no finite vector for texts {list(rows)}")
        self.rows = rows
        """Their places in the list that was encoded."""
