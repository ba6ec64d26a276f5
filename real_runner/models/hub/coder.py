"""A checkpoint's tokenizer as the engine uses it."""

from __future__ import annotations

from real_runner.models.hub.files import Checkpoint, one_line, require_transformers


class HubCoder:
    """TextCoder around a transformers tokenizer.

    With `chat` a prompt is wrapped as one user turn by the checkpoint's chat template, thinking
    off: the published Qwen3 drafters are trained on text generated that way (both releases say so).
    """

    def __init__(self, tokenizer, chat: bool = False):
        self.tokenizer, self.chat = tokenizer, chat

    def encode(self, text: str) -> list[int]:
        """Tokens of a prompt with the tokenizer's own special tokens, or the chat template's."""
        if not self.chat:
            return list(self.tokenizer(text)["input_ids"])
        turns = [{"role": "user", "content": text}]
        wrapped = self.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        return list(self.tokenizer(wrapped, add_special_tokens=False)["input_ids"])

    def decode(self, tokens: list[int]) -> str:
        """Text of output tokens, special tokens left out."""
        return self.tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )


def read_coder(checkpoint: Checkpoint, chat: bool) -> HubCoder:
    """The checkpoint's tokenizer; InputError without one, or without a template under `chat`."""
    transformers = require_transformers()
    if not any(checkpoint.folder.glob("tokenizer*")):
        raise checkpoint.refuse("no tokenizer.json; accepted: a folder with its tokenizer's files")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            checkpoint.folder, local_files_only=True
        )
    except Exception as error:  # tokenizers raises bare Exception on a broken file
        raise checkpoint.refuse(f"unreadable tokenizer ({one_line(error)})") from error
    if chat and not tokenizer.chat_template:
        raise checkpoint.refuse("no chat template for chat true; accepted: chat false")
    return HubCoder(tokenizer, chat)
