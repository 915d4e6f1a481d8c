"""What vLLM 0.32 answers, as recorded: every field, its null ones too, and what its streams leave out."""

from __future__ import annotations

from typing import Any

FINGERPRINT = "vllm-0.32.0-6b0e5aaa"
SERVER_INFO = {
    "vllm_config": {"model_config": {"model": "smollm2", "dtype": "torch.bfloat16", "seed": 0}},
    "vllm_env": {"VLLM_BATCH_INVARIANT": False, "VLLM_SERVER_DEV_MODE": True},
    "system_env": {"torch_version": "2.13.0"},
}


def plain(text: str = "I'm here", reason: str = "stop") -> dict[str, Any]:
    """An answer of /v1/chat/completions."""
    message = {
        "role": "assistant",
        "content": text,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "reasoning": None,
    }
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": reason,
        "stop_reason": None,
        "token_ids": None,
        "routed_experts": None,
    }
    return {
        "id": "chatcmpl-8acabf8f87292c50",
        "object": "chat.completion",
        "created": 1796051548,
        "model": "smollm2",
        "choices": [choice],
        "service_tier": None,
        "system_fingerprint": FINGERPRINT,
        "usage": {
            "prompt_tokens": 33,
            "total_tokens": 36,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 16, "created_cache_tokens": 0, "multimodal_tokens": None},
            "completion_tokens_details": None,
        },
        "prompt_logprobs": None,
        "prompt_token_ids": None,
        "prompt_text": None,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def streamed(*pieces: str, fingerprint: str = FINGERPRINT) -> list[Any]:
    """The events of a stream with ``include_usage``: only the last one states the fingerprint."""
    common = {
        "id": "chatcmpl-a4bb987b053a5f3c",
        "object": "chat.completion.chunk",
        "created": 1796051549,
        "model": "smollm2",
    }
    opening = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": {"content": piece}, "logprobs": None, "finish_reason": None, "token_ids": None}
        for piece in pieces
    ]
    choices[-1] |= {"finish_reason": "stop", "stop_reason": None}
    usage = {
        "prompt_tokens": 33,
        "total_tokens": 36,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 16, "created_cache_tokens": 0},
    }
    return [
        {**common, "choices": [opening], "prompt_token_ids": None, "prompt_text": None},
        *({**common, "choices": [choice]} for choice in choices),
        {**common, "choices": [], "usage": usage, "system_fingerprint": fingerprint},
        b"[DONE]",
    ]


def refusal(status: int, kind: str, message: str, param: str | None) -> tuple[int, dict[str, Any]]:
    """An error; its code is a number."""
    return status, {"error": {"message": message, "type": kind, "param": param, "code": status}}
