"""``samebits serve`` as people start it: a process, the real model, signals, load."""

from __future__ import annotations

import json
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from samebits.cli import main
from waiting import PATIENCE_S, wait_until

READY_WITHIN_S = 3.0
# The command line, with an engine that stands still after the first token until a file is there.
STANDING = """
import sys, time
from pathlib import Path
from samebits.cli import main
from samebits.engine import Engine
file, step = Path(sys.argv.pop(1)), Engine.step
def until_there_is_a_file(engine):
    while engine.running and not file.exists():
        time.sleep(0.005)
    return step(engine)
Engine.step = until_there_is_a_file
main()
"""


class Process:
    """A server in a process of its own.

    Args:
        until: the engine stands still after the first token until this file is there.

    Attributes:
        cpu_s: seconds of processors until it was ready.
    """

    def __init__(self, *arguments: str, until: Path | None = None) -> None:
        program = ["-m", "samebits"] if until is None else ["-c", STANDING, str(until)]
        command = [sys.executable, *program, "serve", *arguments, "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.line = self.process.stderr.readline()
        times = psutil.Process(self.process.pid).cpu_times()
        self.cpu_s = times.user + times.system
        assert " at http://" in self.line, self.line + self.process.stderr.read()
        self.url = "http" + self.line.split(" at http")[1].split("/v1")[0]
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE_S, limits=httpx.Limits(max_connections=100))

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        response = self.http.post(path, json={"model": "smollm2"} | body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def metric(self, name: str) -> float:
        text = self.http.get("/metrics").text
        return float(next(line for line in text.splitlines() if line.startswith(name)).rsplit(" ", 1)[1])

    def end(self) -> tuple[int, str]:
        """Asks it to end; its exit code and what it still said."""
        self.http.close()
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, said


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Iterator[Process]:
    server = Process("smollm2")
    yield server
    code, said = server.end()
    assert (code, said) == (0, "")


def test_ready_in_time(smollm2: Process) -> None:
    assert smollm2.line.startswith("samebits: smollm2 (bf16) at http://127.0.0.1:")
    # Seconds of processors: on a machine with much else to do it waits for its turn. Three times the bound, since there
    # it shares caches, too.
    assert smollm2.cpu_s < 3 * READY_WITHIN_S
    assert smollm2.http.get("/ready").json() == {"status": "ok", "faults": {}}


def test_an_answer_is_that_of_the_command_line(smollm2: Process) -> None:
    command = [sys.executable, "-m", "samebits", "generate", "smollm2", "--chat", "--prompt", "Name three rivers."]
    printed = subprocess.run([*command, "--max-tokens", "8", "--json"], capture_output=True, text=True, check=True)
    alone = json.loads(printed.stdout)
    messages = [{"role": "user", "content": "Name three rivers."}]
    served = smollm2.post("/v1/chat/completions", messages=messages, max_tokens=8, logprobs=True, return_token_ids=True)
    choice = served["choices"][0]
    assert choice["token_ids"] == alone["token_ids"]
    assert [t["logprob"] for t in choice["logprobs"]["content"]] == alone["logprobs"]
    assert served["samebits"]["logprobs_sha256"] == alone["logprobs_digest"]
    assert served["system_fingerprint"] == alone["fingerprint"]


# ---- load ------------------------------------------------------------------------------------------------------------


WORDS = ("the", "river", "is", "a", "long", "way", "from", "here", "and", "nobody", "knows", "where", "it", "ends")
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
KINDS: list[dict[str, Any]] = [
    {},
    {"temperature": 1},
    {"temperature": 0.7, "top_p": 0.9, "top_k": 40},
    {"temperature": 1, "n": 3, "stop": [" the"]},
    {"repetition_penalty": 1.2, "frequency_penalty": 0.5},
    {"temperature": 1, "response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}}},
    {"structured_outputs": {"regex": "[a-z]{3,20}( [a-z]{3,20}){0,5}"}},
    {"temperature": 1, "n": 2, "structured_outputs": {"choice": ["yes", "no", "perhaps"]}},
    {"structured_outputs": {"grammar": 'start: item (", " item)*\nitem: /[A-Z][a-z]{1,9}/'}},
]


def some_requests(count: int, longest: int, rng: random.Random) -> list[dict[str, Any]]:
    """Different requests: lengths, seeds, parameters, forms, several choices and prompts.

    Args:
        longest: words of the longest prompts.
    """
    requests: list[dict[str, Any]] = []
    for i in range(count):
        prompt: Any = " ".join(rng.choices(WORDS, k=rng.choice([1, 5, longest // 4, longest])))
        if i % 5 == 4:
            prompt = [prompt, "Once upon a time"]
        kind = KINDS[i % len(KINDS)]
        seed = {"seed": rng.choice([-1, 0, i])} if "temperature" in kind else {}
        requests.append({"prompt": prompt, "max_tokens": rng.randrange(1, 4 + longest // 10)} | kind | seed)
    return requests


def outcome(answer: dict[str, Any]) -> tuple[Any, ...]:
    block = answer["samebits"]
    texts = tuple((c["text"], c["finish_reason"]) for c in answer["choices"])
    return texts, block["output_tokens_sha256"], block["logprobs_sha256"], block["prompt_tokens_sha256"]


def streamed(server: Process, body: dict[str, Any], leave: bool) -> tuple[Any, ...] | None:
    """The outcome of a stream; None where the client leaves after its beginning."""
    sent = {"model": "smollm2", "stream": True} | body
    with server.http.stream("POST", "/v1/completions", json=sent) as response:
        texts: dict[int, str] = {}
        reasons: dict[int, str] = {}
        answer: dict[str, Any] = {}
        for line in response.iter_lines():
            if leave:
                return None
            if not line or line == "data: [DONE]":
                continue
            answer = json.loads(line.removeprefix("data: "))
            for c in answer["choices"]:
                texts[c["index"]] = texts.get(c["index"], "") + c["text"]
                reasons[c["index"]] = c["finish_reason"] or ""
        choices = [{"text": texts[i], "finish_reason": reasons[i]} for i in sorted(texts)]
        return outcome(answer | {"choices": choices})


def under_load(server: Process, requests: int, distinct: int, longest: int, seed: int) -> None:
    rng = random.Random(seed)
    bodies = some_requests(distinct, longest, rng)
    expected = [outcome(server.post("/v1/completions", **body)) for body in bodies]
    assert len(set(expected)) > distinct * 0.9, "the requests are too much alike"
    seen: list[set[tuple[Any, ...]]] = [set() for _ in bodies]
    left = requests
    while left > 0:
        wave = min(left, rng.randrange(1, 65))
        chosen = [(rng.randrange(distinct), rng.random() < 0.4, rng.random() < 0.1) for _ in range(wave)]

        def ask(choice: tuple[int, bool, bool]) -> None:
            index, stream, leave = choice
            if stream or leave:
                result = streamed(server, bodies[index], leave)
            else:
                result = outcome(server.post("/v1/completions", **bodies[index]))
            if result is not None:
                seen[index].add(result)

        with ThreadPoolExecutor(wave) as pool:
            list(pool.map(ask, chosen))
        left -= wave
    for index, outcomes in enumerate(seen):
        assert outcomes <= {expected[index]}, f"request {index} has {len(outcomes)} different answers"
    assert sum(map(len, seen)) > distinct // 2, "hardly any request was asked"
    wait_until(lambda: server.metric('samebits_kv_pages{model="smollm2",state="held"}') == 0)


def test_one_answer_for_each_request_under_load(smollm2: Process) -> None:
    under_load(smollm2, requests=60, distinct=16, longest=40, seed=1)


@pytest.mark.proof
def test_one_answer_for_each_of_1000_requests(smollm2: Process) -> None:
    under_load(smollm2, requests=1000, distinct=100, longest=200, seed=2)


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_sigterm_lets_what_runs_finish(smollm2: Process, tmp_path: Path) -> None:
    del smollm2  # skips where the model is not installed
    server = Process("smollm2", until=tmp_path / "go on")
    body = {"model": "smollm2", "prompt": "Once", "max_tokens": 60, "ignore_eos": True, "stream": True}
    arrived: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=PATIENCE_S) as response:
            for line in response.iter_lines():
                if line:
                    arrived.put(line)

    listening = threading.Thread(target=listen)
    listening.start()
    lines = [arrived.get(timeout=PATIENCE_S)]
    late = httpx.Client(base_url=server.url, timeout=PATIENCE_S)
    assert late.get("/ready").status_code == 200
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: late.get("/ready").status_code == 503)
    refused = late.post("/v1/completions", json=body)
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "shutting_down"
    assert late.get("/health").status_code == 200
    (tmp_path / "go on").touch()
    listening.join(PATIENCE_S)
    while not arrived.empty():
        lines.append(arrived.get())
    late.close()
    server.http.close()
    _, said = server.process.communicate(timeout=PATIENCE_S)
    assert (server.process.returncode, said) == (0, "")
    assert lines[-1] == "data: [DONE]"
    assert sum('"text"' in line for line in lines) >= 60 - 2


@pytest.mark.parametrize("how", ["second signal", "drain timeout"])
def test_an_end_that_does_not_wait(smollm2: Process, how: str) -> None:
    del smollm2
    server = Process("smollm2", *(["--drain-timeout", "0.2"] if how == "drain timeout" else []))
    body = {"model": "smollm2", "prompt": "Once", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    with server.http.stream("POST", "/v1/completions", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        if how == "second signal":
            with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as late:
                wait_until(lambda: late.get("/ready").status_code == 503)
            server.process.send_signal(signal.SIGTERM)
        _, said = server.process.communicate(timeout=PATIENCE_S)
        assert (server.process.returncode, said) == (0, "")
        *_, last = (line for line in lines if line)  # had it waited for all 4,000 tokens, this were [DONE]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "engine_failed"
    server.http.close()


def test_what_stops_the_command_before_it_serves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, field in (
            ([], "models"),
            (["no-such-model"], "model"),
            (["smollm2", "--host", "0.0.0.0"], "host"),
            (["smollm2", "--host", "not a host"], "host"),
            (["smollm2", "--port", "70000"], "port"),
            (["smollm2", "--port", port], "port"),
            (["smollm2", "--prefix-cache", "perhaps"], "prefix_cache"),
            (["--config", "no-such-file.yaml"], "config"),
            (["--config", "no-such-file.yaml", "--profile", "fp32"], "config"),
        ):
            monkeypatch.setattr(sys, "argv", ["samebits", "serve", *arguments])
            with pytest.raises(SystemExit) as caught:
                main()
            assert caught.value.code == 2
            assert capsys.readouterr().err.startswith(f"samebits: {field}: "), arguments
