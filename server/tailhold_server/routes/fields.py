"""What each field of OpenAI's requests means here: the routes act on it, the reference is printed from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Treatment(StrEnum):
    """What becomes of a field."""

    HONOURED = "honoured"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True)
class FieldRule:
    """One field of a request."""

    treatment: Treatment
    says: str
    """How it is honoured, why it may be ignored, or what to do where it is refused."""
    harmless: tuple[Any, ...] = ()
    """Values of an ignored or refused field that ask for nothing; they are accepted."""
    any_value: bool = False
    """Every value of an ignored field is accepted."""


Fields = Mapping[str, FieldRule]


def _honoured(says: str) -> FieldRule:
    return FieldRule(Treatment.HONOURED, says)


def _ignored(says: str, *harmless: Any) -> FieldRule:
    return FieldRule(Treatment.IGNORED, says, harmless, any_value=not harmless)


def _refused(says: str, *harmless: Any) -> FieldRule:
    return FieldRule(Treatment.REFUSED, says, (None, *harmless))


CHAT: Fields = {
    "messages": _honoured(
        "1 to 1000. Roles `system` and `developer` (the same), `user`, `assistant`. `content` is a text or parts"
        " of type `text`, joined by line breaks. The last message is the user's: it is what is looked up."
    ),
    "model": _honoured("The pipeline's name or `generator.servedName`; left out or empty, the pipeline."),
    "stream": _honoured("Server-sent events, sources first."),
    "stream_options": _honoured(
        "`include_usage`; with it vLLM's `continuous_usage_stats` gives every chunk the tokens until then."
        " `include_obfuscation` is accepted and adds nothing."
    ),
    "max_completion_tokens": _honoured(
        "At least 1; clamped to the room that the prompt leaves. Wins over `max_tokens`."
    ),
    "max_tokens": _honoured("The older name of `max_completion_tokens`."),
    "temperature": _honoured("0 to 2; `prompt.temperature` where it is not given."),
    "top_p": _honoured("Above 0, at most 1."),
    "seed": _honoured("The same seed, prompt and revision draw the same tokens on the same machine."),
    "stop": _honoured("Up to 4 texts of 1 to 200 characters. The answer ends before the first that is written."),
    "presence_penalty": _honoured("-2 to 2."),
    "frequency_penalty": _honoured("-2 to 2."),
    "logit_bias": _honoured("Up to 300 token ids of the generator's own tokenizer, -100 to 100."),
    "logprobs": _honoured("The logarithm of each token's probability, in every chunk or in the whole answer."),
    "top_logprobs": _honoured("0 to 20 likelier tokens beside each; needs `logprobs: true`."),
    "response_format": _honoured(
        "`text`, `json_object`, or `json_schema`, which the engine holds the answer to. A schema that it cannot hold an"
        " answer to is refused."
    ),
    "user": _honoured("Up to 1000 characters: whom the client asks for, in audit records. Nothing else reads it."),
    "safety_identifier": _honoured("The newer name of `user`; wins over it."),
    "metadata": _ignored("For stored completions, and none is stored."),
    "prompt_cache_key": _ignored("Equal beginnings share their KV blocks without it: `engine.prefixCaching`."),
    "cache_salt": _refused("Blocks are kept apart by the tenant of the key: nobody chooses whose to share."),
    "prompt_cache_retention": _ignored("How long blocks stay is the engine's."),
    "prompt_cache_options": _ignored("How long blocks stay is the engine's."),
    "parallel_tool_calls": _ignored("There are no tools."),
    "store": _ignored("Nothing is stored: `true` is refused.", None, False),
    "service_tier": _ignored("There is one tier: another one is refused.", None, "auto", "default"),
    "n": _refused("Ask as often: equal prompts share their KV blocks.", 1),
    "tools": _refused("The pipeline looks passages up by itself.", []),
    "tool_choice": _refused("There are no tools.", "none", "auto"),
    "functions": _refused("The older name of `tools`.", []),
    "function_call": _refused("The older name of `tool_choice`.", "none"),
    "audio": _refused("The answer is text."),
    "modalities": _refused("The answer is text.", ["text"]),
    "prediction": _refused("Nothing of an answer is known beforehand."),
    "reasoning_effort": _refused("The generator has no such setting."),
    "verbosity": _refused("Say in the question how long the answer is to be."),
    "moderation": _refused("Nothing is moderated here."),
    "web_search_options": _refused("Only the pipeline's own documents are searched."),
}

EMBEDDINGS: Fields = {
    "input": _honoured(
        "A text, or 1 to 2048 of them, none empty and none longer than `embedder.maxTokens` with prefix and special"
        " tokens: nothing is cut. Token ids are refused: most clients' are another tokenizer's, other words here."
    ),
    "model": _honoured(
        "The pipeline's name with `-embedder`, or any name that chat takes; left out or empty, the same."
    ),
    "encoding_format": _honoured("`float`, or `base64` of little-endian float32, which OpenAI's clients ask for."),
    "dimensions": _honoured("`embedder.dimension` alone: vectors are not shortened."),
    "input_type": _honoured(
        "Our own: `query` (the default) puts `embedder.queryPrefix` before each text, `passage` puts"
        " `embedder.passagePrefix`, `none` nothing."
    ),
    "user": _ignored("Not stored and not passed on."),
}

SEARCH: Fields = {
    "query": _honoured("A text, or 1 to 32 of them: each passage stands once, with the best of its scores."),
    "max_num_results": _honoured("1 to 50, 10 where it is not given."),
    "filters": _honoured(
        "`eq`, `ne`, `gt`, `gte`, `lt`, `lte`, `in`, `nin`, joined by `and` and `or`, over `source`,"
        " `document`, `title`, `file_id`, `filename` and the file's own attributes. They act within the search, whose"
        " page stays full."
    ),
    "ranking_options": _honoured("`score_threshold`; `ranker` may be `auto` or `none`: scores are the vectors' own."),
    "rewrite_query": _refused("The query is searched as it is written.", False),
}

FILES: Fields = {
    "file": _honoured("One file, at most `corpus.uploads.maxFileMebibytes`. Its name tells how it is read."),
    "purpose": _honoured("`assistants` or `user_data`."),
    "expires_after": _refused("Files stay until they are deleted."),
}

ATTACH: Fields = {
    "file_id": _honoured("A file that was uploaded."),
    "attributes": _honoured("Up to 16, for `filters`. They hold at once, without another index."),
    "chunking_strategy": _refused("All documents are cut by `corpus.chunking`.", {"type": "auto"}),
}

BATCH: Fields = {
    "file_ids": _honoured("1 to 2000 files that were uploaded. Either these or `files`."),
    "files": _honoured("The same, each with `attributes` of its own."),
    "attributes": ATTACH["attributes"],
    "chunking_strategy": ATTACH["chunking_strategy"],
}

REQUESTS: Mapping[str, Fields] = {
    "POST /v1/chat/completions": CHAT,
    "POST /v1/embeddings": EMBEDDINGS,
    "POST /v1/vector_stores/{id}/search": SEARCH,
    "POST /v1/files": FILES,
    "POST /v1/vector_stores/{id}/files": ATTACH,
    "POST /v1/vector_stores/{id}/file_batches": BATCH,
}
"""Every request that OpenAI gives a body."""
