"""The contract between users, operator and server: models of a RagPipeline, names, codec and digests."""
