"""Let the target answer the training prompts; one JSON line for each answer.

    python -m controlplane.demo_models.recipe.write_answers general|support \
        --target FOLDER --out FILE [--prompts N] [--tokens N]

A line holds token numbers: {"prompt": [...], "answer": [...]}.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from controlplane.demo_models.recipe import prompts

_BATCH = 288


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=["general", "support"])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=3000)
    parser.add_argument("--tokens", type=int, default=160)
    args = parser.parse_args()
    asked = prompts.general() if args.workload == "general" else prompts.support(held_out=False)
    asked = asked[: args.prompts]

    from vllm import LLM, SamplingParams

    llm = LLM(
        str(args.target),
        dtype="bfloat16",
        max_model_len=1024,
        max_num_seqs=96,
        enforce_eager=True,
    )
    tokenizer = llm.get_tokenizer()
    # General answers are half greedy, half sampled, for variety; the workload is served greedily.
    warm = 0.8 if args.workload == "general" else 0.0
    how = [
        SamplingParams(temperature=warm if n % 2 else 0.0, max_tokens=args.tokens)
        for n in range(len(asked))
    ]
    with args.out.open("w", encoding="utf-8") as out:
        for start in range(0, len(asked), _BATCH):
            some = slice(start, start + _BATCH)
            ids = [
                tokenizer.apply_chat_template(
                    [{"role": "user", "content": text}],
                    add_generation_prompt=True,
                    tokenize=True,
                    return_dict=False,
                )
                for text in asked[some]
            ]
            answers = llm.generate([{"prompt_token_ids": i} for i in ids], how[some])
            for prompt, answer in zip(ids, answers, strict=True):
                line = {"prompt": prompt, "answer": list(answer.outputs[0].token_ids)}
                out.write(json.dumps(line) + "\n")
            print(f"{min(start + _BATCH, len(asked))} of {len(asked)} answered", flush=True)


if __name__ == "__main__":
    main()
