"""What touches torch, vLLM, FAISS and tokenizers."""
