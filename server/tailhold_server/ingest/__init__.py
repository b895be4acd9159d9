"""From sources to a published snapshot: read, extract, split, embed, write. Runs in the index Job."""
