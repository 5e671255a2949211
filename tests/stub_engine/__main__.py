"""An engine without a model: a real HTTP server that speaks vLLM's surface.

It stands where `vllm` stands, and starts in about a tenth of a second (standard library only):

    python -m tests.stub_engine serve MODEL_PATH --served-model-name=NAME --host=H --port=P ...
    python PATH/TO/tests/stub_engine serve ...          # from any folder; as -S -E -I too

so `SLIPSTREAM_ENGINE_COMMAND="PYTHON PATH/TO/tests/stub_engine"` puts it under the local driver.

Surface: `/health`, `/ping`, `/version`, `/load`, `/metrics` (vLLM's names; `spec_decode` counters
with `--speculative-config` only), `/v1/models`, `/v1/chat/completions` and `/v1/completions`
(plain and streamed, with usage; with speculation several tokens a chunk), `/v1/embeddings`.
`VLLM_API_KEY` is asked for under `/v1`. 404 for an unknown model, 400 for one that is too long,
422-like 400s for bad JSON. `/stub/requests` lists what arrived (method, path, headers; no body).

SIGTERM with nothing in flight: exit 0 at once. With streams in flight: `--shutdown-timeout=0`
cuts them without an error or an end, and the process stays (as the real one does); with a
longer one streams may finish, new ones get 500, `/health` stays 200, then exit 0.

Behaviour is steered by `stub.json` in MODEL_PATH, read at the start and again whenever it
changes, so that a test steers a deployment by its registered folder, even while it runs:

    start_seconds       seconds from exec to listening (0)
    fail_log            print this file (relative to MODEL_PATH), then exit with exit_code
    exit_code           of a start that fails (1)
    fail_times          only the first N starts fail (null: all)
    never_listen        the process lives and never listens (false)
    crash_after_seconds exit with crash_code that long after listening (null)
    crash_code          exit status of a crash; vLLM's is 0 (0)
    die_on_request      "before": exit with crash_code when a completion comes; "during": after
                        its third chunk (null)
    die_now             a running one ends with this exit status within 50 ms; set before a start
                        it changes nothing (null)
    hang_on_term        SIGTERM does nothing (false)
    wrong_name          serve under this name, not the one that was asked for (null)
    spawn_child         a child process in the same group, as EngineCore is. When it is killed:
                        error chunk and [DONE] on streams, /health 503, then exit 0. It outlives
                        a killed parent (false)
    health_status       what /health answers (200)
    mute                connections are taken and nothing is ever answered (false)
    no_metrics          /metrics is 404 (false)
    token_seconds       seconds a step (0.002)
    first_token_seconds seconds before the first one (0)
    tokens              tokens of an answer, if max_tokens doesn't end it earlier (16)
    text                the answer's words; repeated as needed ("one two three four")
    max_model_len       where --max-model-len isn't given (2048)
    accepted            drafted tokens accepted a step, when speculating (2)

No stub lives longer than a quarter of an hour, so that none outlives a test for long.

Each start appends a JSON line to `starts.jsonl` in MODEL_PATH, where it can be written: pid,
child (pid or null), port, served name, time.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from stub_life import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
