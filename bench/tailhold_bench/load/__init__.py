"""An open-loop load generator: requests leave when they are due, and latency counts from then.

`arrivals`, `questions` and `traces` say what is due; `generator` sends it through a `Target`; `percentiles`,
`objectives` and `report` say what came of it; `command` is what `tailhold load` runs.
"""
