"""How models and snapshots come to a pod: fetched in pieces that survive a crash, checked, and published whole."""
