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

# Defaults of options that a model may bring along.
OR_0, OR_1, OR_256 = (f"the model's, or {value}" for value in (0, 1, 256))
if TYPE_CHECKING:
    from samebits.structured import JsonSchema


def generate(
    model: Annotated[str, typer.Argument(help="A GGUF file, a Hugging Face folder, or smollm2.", show_default=False)],
    prompt: Annotated[str, typer.Option(help="The text to continue; - reads standard input.", show_default=False)],
    chat: Annotated[bool, typer.Option("--chat", help="Send the prompt as a user's message.")] = False,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens to generate.", show_default=OR_256)] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.", show_default=OR_0)] = None,
    top_p: Annotated[float | None, typer.Option(help="Share of the probability to keep.", show_default=OR_1)] = None,
    top_k: Annotated[int | None, typer.Option(help="Best ids to keep; 0 keeps all.", show_default=OR_0)] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Keep ids of this share of the best one's probability.", show_default=OR_0)
    ] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="For ids that occurred; 1 is none.", show_default=OR_1)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Drawn and shown when not given.", show_default=False)] = None,
    json_schema: Annotated[
        Path | None, typer.Option(help="A file with the JSON schema of the answer.", show_default=False)
    ] = None,
    profile: Annotated[str, typer.Option(help="fp32, bf16 or int8.")] = "bf16",
    threads: Annotated[int | None, typer.Option(help="One per CPU when not given.", show_default=False)] = None,
    isa: Annotated[str | None, typer.Option(help="Instruction set; see samebits info.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with ids, bits and digests.")] = False,
    show_params: Annotated[
        bool, typer.Option("--show-params", help="Show each parameter and where it came from, on standard error.")
    ] = False,
) -> None:
    """Generate text; the same command gives the same bits on any machine."""
    from samebits.engine import Event, SamplingParams, describe
    from samebits.llm import LLM
    from samebits.numerics import digest_array

    if prompt == "-":
        prompt = sys.stdin.read()
    options = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
        "logprobs": 0 if as_json else None,
    }
    params = SamplingParams.from_mapping({name: value for name, value in options.items() if value is not None})
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
        effective = llm.resolve(params.explicit)
        described = describe(effective.params, effective.origins)
        if show_params:
            for name, item in described.items():
                typer.echo(f"{name:>18}  {json.dumps(item['value']):<6}  {item['origin']}", err=True)
        [completion] = llm.generate(ids, params, structured=structured, on_event=None if as_json else show)
        if completion.error is not None:
            raise completion.error
        if not as_json:
            sys.stdout.write("\n")
            if structured is not None and completion.finish_reason == "length":
                typer.echo("samebits: warning: the answer was cut at max_tokens, and is incomplete", err=True)
            if effective.params.temperature > 0 and seed is None:
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
            "params": described,
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
