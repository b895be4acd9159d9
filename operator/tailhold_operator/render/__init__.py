"""From a spec to the objects that it needs: nothing is read, nothing is written."""
