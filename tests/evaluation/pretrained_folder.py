"""Folders with tiny pretrained models, for the tests beside this file."""

import json

import torch


def make(folder, kind="llama", layers=1):
    """A tiny random model in a folder, with a tokenizer of single bytes."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(["<s>", *letters])}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    size, shape = tokenizer.get_vocab_size(), {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": layers}
    torch.manual_seed(0)
    if kind == "mpt":
        config = transformers.MptConfig(vocab_size=size, d_model=32, n_heads=4, n_layers=layers)
    elif kind == "gpt2":
        config = transformers.GPT2Config(vocab_size=size, n_embd=32, n_head=4, n_layer=layers)
    elif kind == "git":
        vision = {**shape, "intermediate_size": 32, "image_size": 8, "patch_size": 4}
        config = transformers.GitConfig(vocab_size=size, intermediate_size=64, vision_config=vision, **shape)
    elif kind == "gemma3":
        text = {**shape, "vocab_size": size, "intermediate_size": 64, "head_dim": 8, "num_key_value_heads": 4}
        vision = {**shape, "intermediate_size": 32, "image_size": 8, "patch_size": 4}
        config = transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=1)
    elif kind == "gptj":
        config = transformers.GPTJConfig(vocab_size=size, n_embd=32, n_head=4, n_layer=layers, rotary_dim=4)
    elif kind == "mamba":
        config = transformers.MambaConfig(vocab_size=size, hidden_size=16, num_hidden_layers=layers, state_size=4)
    elif kind == "mixtral":
        more = {"intermediate_size": 64, "num_local_experts": 4, "num_key_value_heads": 4}
        config = transformers.MixtralConfig(vocab_size=size, **shape, **more)
    else:
        config = transformers.LlamaConfig(vocab_size=size, intermediate_size=64, **shape)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>").save_pretrained(folder)
    return folder


def change(folder, file="config.json", **settings):
    path = folder / file
    found = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**found, **settings}))
    return folder


def predicted(model):
    """What a model predicts after two prompts with one example of a Boolean function."""
    from lengthwise.reach.functions import boolean_functions, predictions, prompts_of

    (choice,) = boolean_functions(["conjunction"], 3)
    return predictions(model, *prompts_of(choice, "standard", 1, 1, "plain", 2, 0), 8)
