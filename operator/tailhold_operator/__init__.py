"""The controller: it turns a RagPipeline into running pods and keeps its promise."""
