"""Small workload files of every format, as people have them, and how tests write them."""

from __future__ import annotations

from pathlib import Path

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:16:46.6805900,879,55
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
118,GPT-4,417,0,417,Conversation log
120.5,GPT-4,1360,203,1563,API log
"""
MOONCAKE = """{"timestamp": 0, "input_length": 6755, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 0, "input_length": 7319, "output_length": 490, "hash_ids": [0, 14]}
{"timestamp": 3052, "input_length": 7234, "output_length": 794, "hash_ids": [0, 28]}
"""
SHAREGPT = """[{"id": "a", "conversations": [{"from": "human", "value": "four"},
 {"from": "gpt", "value": "nine char"}, {"from": "human", "value": "not read"}]},
{"id": "b", "conversations": []},
{"id": "c", "conversations": [{"from": "gpt", "value": "hello, first"},
 {"from": "human", "value": "hey"}, {"from": "gpt", "value": "12345678"}]}]
"""
OURS = """time_s,prompt_tokens,output_tokens,domain
0.5,10,20,math
0.75,11,21,code
"""
TEXTS = {
    "azure": ("azure.csv", AZURE),
    "burstgpt": ("burst.csv", BURSTGPT),
    "mooncake": ("mooncake.jsonl", MOONCAKE),
    "sharegpt": ("share.json", SHAREGPT),
    "csv": ("ours.csv", OURS),
}


def write(folder: Path, name: str, text: str | bytes) -> Path:
    """A file with exactly these characters (as UTF-8) or bytes."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path
