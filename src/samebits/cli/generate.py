"""``samebits generate``: continue one prompt."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from samebits.errors import InputError

if TYPE_CHECKING:
    from samebits.structured import JsonSchema


def generate(
    model: Annotated[str, typer.Argument(help="A GGUF file, a Hugging Face folder, or smollm2.", show_default=False)],
    prompt: Annotated[str, typer.Option(help="The text to continue; - reads standard input.", show_default=False)],
    chat: Annotated[bool, typer.Option("--chat", help="Send the prompt as a user's message.")] = False,
    max_tokens: Annotated[int, typer.Option(help="Most tokens to generate.")] = 256,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Share of the probability to keep.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Best ids to keep; 0 keeps all.")] = 0,
    seed: Annotated[int | None, typer.Option(help="Drawn and shown when not given.", show_default=False)] = None,
    json_schema: Annotated[
        Path | None, typer.Option(help="A file with the JSON schema of the answer.", show_default=False)
    ] = None,
    profile: Annotated[str, typer.Option(help="fp32, bf16 or int8.")] = "bf16",
    threads: Annotated[int | None, typer.Option(help="One per CPU when not given.", show_default=False)] = None,
    isa: Annotated[str | None, typer.Option(help="Instruction set; see samebits info.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with ids, bits and digests.")] = False,
) -> None:
    """Generate text; the same command gives the same bits on any machine."""
    from samebits.engine import Event, SamplingParams
    from samebits.llm import LLM
    from samebits.numerics import digest_array

    if prompt == "-":
        prompt = sys.stdin.read()
    params = SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        logprobs=0 if as_json else None,
    )
    structured = None if json_schema is None else _read_schema(json_schema)
    if not prompt and chat:
        raise InputError("is empty", field="prompt", remedy="Give a non-empty prompt.")

    def show(index: int, event: Event) -> None:
        del index
        sys.stdout.write(event.text)
        sys.stdout.flush()

    with LLM(model, profile, threads=threads, isa=isa, max_batch=1) as llm:
        message: Any = [{"role": "user", "content": prompt}] if chat else prompt
        ids = llm.encode_prompt(message)
        for warning in llm.tokenizer.prompt_warnings(ids):
            typer.echo(f"samebits: warning: {warning}", err=True)
        [completion] = llm.generate(ids, params, structured=structured, on_event=None if as_json else show)
        if completion.error is not None:
            raise completion.error
        if not as_json:
            sys.stdout.write("\n")
            if structured is not None and completion.finish_reason == "length":
                typer.echo("samebits: warning: the answer was cut at max_tokens, and is incomplete", err=True)
            if temperature > 0 and seed is None:
                typer.echo(f"samebits: seed {completion.seed}", err=True)
            return
        assert completion.logprobs is not None
        result = {
            "text": completion.text,
            "finish_reason": completion.finish_reason,
            "prompt_token_ids": ids,
            "token_ids": list(completion.token_ids),
            "logprobs": [float(x) for x in completion.logprobs],
            "logprobs_digest": digest_array(completion.logprobs),
            "seed": completion.seed,
            "profile": profile,
            "fingerprint": llm.fingerprint,
        }
        typer.echo(json.dumps(result))


def _read_schema(path: Path) -> JsonSchema:
    from samebits.structured import JsonSchema

    try:
        return JsonSchema(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}", field="json_schema", remedy="Give a JSON file.") from error
