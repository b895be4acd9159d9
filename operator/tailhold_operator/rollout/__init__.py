"""How a new revision replaces the one that serves: beside it or in its place, at once or in judged steps."""
