"""A hash-chained record of each answer: written before the answer is sent, verified by anybody who has the files."""
