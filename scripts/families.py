#!/usr/bin/env python3
"""Makes the small random models of testdata/families with Hugging Face transformers, and what they answer.

    python3 scripts/families.py OUT [NAME...]

Each folder of OUT is a model as save_pretrained writes it, and reference.json: ids, the float32 logits at every
position, and the greedy continuation with the margin of each choice to the runner-up. Weights are wide (about what a
trained model has after its norms), so that a wrong detail shows in the logits. Needs torch and transformers.
"""
import json
import os
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

VOCAB, HIDDEN, HEADS, LAYERS, INTER, POSITIONS = 128, 32, 4, 3, 48, 128
IDS, GREEDY = 24, 12

MODERN = dict(vocab_size=VOCAB, hidden_size=HIDDEN, num_attention_heads=HEADS, num_hidden_layers=LAYERS,
              intermediate_size=INTER, max_position_embeddings=POSITIONS, bos_token_id=0, eos_token_id=1, pad_token_id=0)
GQA = dict(MODERN, num_key_value_heads=2)
OLD = dict(vocab_size=VOCAB, n_embd=HIDDEN, n_head=HEADS, n_layer=LAYERS, n_positions=POSITIONS, bos_token_id=0, eos_token_id=1)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32)
LOCAL = ["sliding_attention", "sliding_attention", "full_attention"]
SHORT, LONG = [1.0, 1.1, 1.3, 1.6], [1.0, 1.5, 2.5, 4.0]

# name: (model_type, config)
FAMILIES = {
    "llama-linear": ("llama", dict(GQA, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0))),
    "llama-dynamic": ("llama", dict(GQA, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0))),
    "llama-yarn": ("llama", dict(GQA, rope_parameters=YARN)),
    "llama-bias": ("llama", dict(GQA, attention_bias=True, mlp_bias=True, head_dim=16)),
    "qwen2-window": ("qwen2", dict(GQA, use_sliding_window=True, sliding_window=8, max_window_layers=1)),
    "qwen3-yarn": ("qwen3", dict(GQA, head_dim=16, rope_parameters=dict(YARN, factor=3.0))),
    "phi3-short": ("phi3", dict(GQA, original_max_position_embeddings=64, rope_parameters=dict(
        rope_type="longrope", rope_theta=10000.0, short_factor=SHORT, long_factor=LONG))),
    "phi3-long": ("phi3", dict(GQA, original_max_position_embeddings=16, rope_parameters=dict(
        rope_type="longrope", rope_theta=10000.0, short_factor=SHORT, long_factor=LONG))),
    "phi3-partial": ("phi3", dict(GQA, rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))),
    "gemma": ("gemma", dict(GQA, head_dim=16)),
    "gemma3-global": ("gemma3_text", dict(GQA, head_dim=16, query_pre_attn_scalar=20, sliding_window=8, layer_types=LOCAL,
        rope_parameters=dict(full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0),
                             sliding_attention=dict(rope_type="default", rope_theta=10000.0)))),
    "vaultgemma": ("vaultgemma", dict(GQA, head_dim=16, query_pre_attn_scalar=20, sliding_window=8, layer_types=LOCAL)),
    "smollm3": ("smollm3", dict(GQA, no_rope_layers=[1, 0, 1])),
    "olmo": ("olmo", dict(GQA)),
    "olmo2": ("olmo2", dict(GQA)),
    "olmo3": ("olmo3", dict(GQA, sliding_window=8, layer_types=LOCAL)),
    "olmo3-yarn": ("olmo3", dict(GQA, sliding_window=8, layer_types=LOCAL, rope_parameters=dict(
        full_attention=YARN, sliding_attention=dict(rope_type="default", rope_theta=10000.0)))),
    "olmoe": ("olmoe", dict(GQA, num_experts=6, num_experts_per_tok=2)),
    "granite": ("granite", dict(GQA, embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.4, logits_scaling=4.0)),
    "granitemoe": ("granitemoe", dict(GQA, embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.4,
        logits_scaling=4.0, num_local_experts=4, num_experts_per_tok=2)),
    "granitemoeshared": ("granitemoeshared", dict(GQA, num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=40)),
    "starcoder2": ("starcoder2", dict(GQA, sliding_window=8)),
    "cohere": ("cohere", dict(GQA, logit_scale=0.25)),
    "cohere-qknorm": ("cohere", dict(GQA, logit_scale=0.25, use_qk_norm=True)),
    "cohere2": ("cohere2", dict(GQA, logit_scale=0.25, sliding_window=8, layer_types=LOCAL)),
    "stablelm": ("stablelm", dict(GQA, use_qkv_bias=True, partial_rotary_factor=0.5)),
    "stablelm-parallel": ("stablelm", dict(GQA, use_parallel_residual=True, partial_rotary_factor=0.5)),
    "stablelm-qknorm": ("stablelm", dict(GQA, qk_layernorm=True, partial_rotary_factor=0.5)),
    "falcon": ("falcon", dict(vocab_size=VOCAB, hidden_size=HIDDEN, num_attention_heads=HEADS, num_hidden_layers=LAYERS,
        max_position_embeddings=POSITIONS, bos_token_id=0, eos_token_id=1)),
    "falcon-new": ("falcon", dict(vocab_size=VOCAB, hidden_size=HIDDEN, num_attention_heads=HEADS, num_hidden_layers=LAYERS,
        max_position_embeddings=POSITIONS, num_kv_heads=2, new_decoder_architecture=True, bos_token_id=0, eos_token_id=1)),
    "falcon-11b": ("falcon", dict(vocab_size=VOCAB, hidden_size=HIDDEN, num_attention_heads=HEADS, num_hidden_layers=2,
        max_position_embeddings=POSITIONS, num_kv_heads=2, new_decoder_architecture=True, num_ln_in_parallel_attn=1,
        ffn_hidden_size=48, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1)),
    "falcon-alibi": ("falcon", dict(vocab_size=VOCAB, hidden_size=HIDDEN, num_attention_heads=HEADS, num_hidden_layers=LAYERS,
        multi_query=False, alibi=True, bias=True, parallel_attn=False, bos_token_id=0, eos_token_id=1)),
    "gptj": ("gptj", dict(OLD, rotary_dim=4)),
    "codegen": ("codegen", dict(OLD, rotary_dim=4)),
    "gpt_neo": ("gpt_neo", dict(vocab_size=VOCAB, hidden_size=HIDDEN, num_heads=HEADS, num_layers=2, window_size=8,
        attention_types=[[["global", "local"], 1]], max_position_embeddings=POSITIONS, bos_token_id=0, eos_token_id=1)),
    "gpt_bigcode": ("gpt_bigcode", dict(OLD)),
    "gpt_bigcode-mha": ("gpt_bigcode", dict(OLD, multi_query=False)),
    "gpt2-scaled": ("gpt2", dict(OLD, scale_attn_by_inverse_layer_idx=True, n_inner=48)),
    "gpt_neox-serial": ("gpt_neox", dict(MODERN, use_parallel_residual=False)),
    "phi": ("phi", dict(MODERN, partial_rotary_factor=0.5)),
    "phi-qknorm": ("phi", dict(GQA, partial_rotary_factor=0.5, qk_layernorm=True)),
    "mpt": ("mpt", dict(vocab_size=VOCAB, d_model=HIDDEN, n_heads=HEADS, n_layers=LAYERS, max_seq_len=POSITIONS)),
    "mpt-odd": ("mpt", dict(vocab_size=VOCAB, d_model=48, n_heads=6, n_layers=2, max_seq_len=POSITIONS)),
    "bloom-odd": ("bloom", dict(vocab_size=VOCAB, hidden_size=48, n_head=6, n_layer=2)),
    "persimmon": ("persimmon", dict(MODERN, partial_rotary_factor=0.5)),
    "nemotron": ("nemotron", dict(GQA, partial_rotary_factor=0.5)),
    "arcee": ("arcee", dict(GQA)),
    "glm": ("glm", dict(GQA, head_dim=8, partial_rotary_factor=0.5)),
    "glm4": ("glm4", dict(GQA, head_dim=8, partial_rotary_factor=0.5)),
    "helium": ("helium", dict(GQA, head_dim=8)),
    "exaone4": ("exaone4", dict(GQA, sliding_window=8, layer_types=LOCAL)),
    "seed_oss": ("seed_oss", dict(GQA, head_dim=8)),
    "ernie4_5": ("ernie4_5", dict(GQA)),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", dict(GQA, head_dim=8)),
    "hunyuan_v1_moe": ("hunyuan_v1_moe", dict(GQA, head_dim=8, num_experts=4, moe_topk=2)),
    "nanochat": ("nanochat", dict(GQA)),
    "ministral": ("ministral", dict(GQA, head_dim=8, sliding_window=8, layer_types=LOCAL)),
    "cwm": ("cwm", dict(GQA, head_dim=8, sliding_window=8, layer_types=LOCAL)),
    "apertus": ("apertus", dict(GQA)),
    "exaone4-full": ("exaone4", dict(GQA, sliding_window=None, layer_types=["full_attention"] * LAYERS)),
    "hyperclovax": ("hyperclovax", dict(GQA, embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.4,
        logits_scaling=0.25)),
    "ministral3": ("ministral3", dict(GQA, head_dim=16, rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
        original_max_position_embeddings=8, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1))),
    "qwen2_moe": ("qwen2_moe", dict(GQA, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=40)),
    "qwen3_moe-mixed": ("qwen3_moe", dict(GQA, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
        mlp_only_layers=[1], norm_topk_prob=False)),
    "biogpt": ("biogpt", dict(MODERN)),
    "xglm": ("xglm", dict(vocab_size=VOCAB, d_model=HIDDEN, attention_heads=HEADS, num_layers=LAYERS, ffn_dim=INTER,
        max_position_embeddings=POSITIONS)),
    "openai-gpt": ("openai-gpt", dict(OLD)),
    "opt-post": ("opt", dict(vocab_size=VOCAB, hidden_size=HIDDEN, num_attention_heads=HEADS, num_hidden_layers=2, ffn_dim=INTER,
        max_position_embeddings=POSITIONS, do_layer_norm_before=False, word_embed_proj_dim=16, bos_token_id=0, eos_token_id=1)),
    "flex_olmo": ("flex_olmo", dict(GQA, num_experts=4, num_experts_per_tok=2)),
    "jais2": ("jais2", dict(GQA)),
    "llama-fp8": ("llama", dict(GQA, hidden_size=144, intermediate_size=160, head_dim=48, num_hidden_layers=2)),
}


def widen(model, seed):
    """Draws every parameter anew: matrices 1.6/sqrt(in), embeddings 1, norms about 1, biases 0.3."""
    g = torch.Generator().manual_seed(seed)
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = torch.randn(p.shape, generator=g)
            if id(p) in embeddings:
                positions = any(k in name for k in ("wpe", "embed_positions", "positions_embed"))
                p.copy_(x * (0.2 if positions else 1.0))
            elif p.dim() > 1 and "norm" in name:
                p.copy_(1 + 0.3 * x)
            elif p.dim() > 1:
                p.copy_(x * 1.6 / p.shape[-1] ** 0.5)
            elif name.endswith("bias") and "experts" not in name:
                p.copy_(0.3 * x)
            else:
                p.copy_(1 + 0.3 * x)


def block_fp8(folder):
    """Stores the matrices of the layers as F8_E4M3 with a scale for each 128 x 128 block."""
    path = os.path.join(folder, "model.safetensors")
    tensors, out = load_file(path), {}
    for name, w in tensors.items():
        if "proj" not in name:
            out[name] = w
            continue
        n, k = w.shape
        bn, bk = -(-n // 128), -(-k // 128)
        padded = torch.zeros(bn * 128, bk * 128)
        padded[:n, :k] = w.float()
        blocks = padded.view(bn, 128, bk, 128)
        scale = blocks.abs().amax(dim=(1, 3)) / 448
        q = (blocks / scale[:, None, :, None]).view(bn * 128, bk * 128)[:n, :k].to(torch.float8_e4m3fn)
        out[name], out[name + "_scale_inv"] = q.contiguous(), scale
        tensors[name] = q.float() * scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:n, :k]
    save_file(out, path, metadata={"format": "pt"})
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    config["quantization_config"] = dict(activation_scheme="dynamic", fmt="e4m3", quant_method="fp8", weight_block_size=[128, 128])
    json.dump(config, open(path, "w"), indent=2)
    return tensors


def make(name, out):
    kind, kwargs = FAMILIES[name]
    # The plain implementation of Falcon's attention adds ALiBi twice in transformers 5.17.
    attention = "sdpa" if name == "falcon-alibi" else "eager"
    config = AutoConfig.for_model(kind, **kwargs)
    seed = sum(ord(c) for c in name)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).float().eval()
    widen(model, seed)
    folder = os.path.join(out, name)
    model.to(torch.bfloat16).save_pretrained(folder)
    if name.endswith("-fp8"):
        weights = block_fp8(folder)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).float().eval()
        missing = model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
        assert not missing.unexpected_keys, missing
    else:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention).eval()
    g = torch.Generator().manual_seed(seed + 1)
    ids = torch.randint(2, VOCAB, (1, IDS), generator=g)
    with torch.no_grad():
        o = model(ids, output_hidden_states=True, use_cache=False)
        logits = o.logits[0].float()
        greedy, margin, seq = [], [], ids
        for _ in range(GREEDY):
            top = model(seq, use_cache=False).logits[0, -1].float().topk(2)
            greedy.append(top.indices[0].item())
            margin.append(round((top.values[0] - top.values[1]).item(), 4))
            seq = torch.cat([seq, top.indices[:1][None]], 1)
    reference = dict(
        ids=ids[0].tolist(), dtype="float32",
        logits=[[float(f"{v:.6g}") for v in row] for row in logits.tolist()],
        hidden_last_token=[[float(f"{v:.6g}") for v in h[0, -1].tolist()] for h in o.hidden_states],
        greedy=greedy, greedy_margin=margin)
    json.dump(reference, open(os.path.join(folder, "reference.json"), "w"))


def main():
    out, names = sys.argv[1], sys.argv[2:] or list(FAMILIES)
    failed = {}
    for name in names:
        try:
            make(name, out)
            print("made", name, flush=True)
        except Exception as e:
            failed[name] = f"{type(e).__name__}: {str(e)[:300]}"
    for name, why in failed.items():
        print("failed", name, why)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
