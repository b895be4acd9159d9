"""OpenAI's vector stores: a pipeline is one of them."""
