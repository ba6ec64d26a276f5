"""Prose and functions of the installed Python standard library.

Files are parsed, never imported, so reading them has no side effects.
"""

from __future__ import annotations

import ast
import hashlib
import os
import platform
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

SKIPPED_DIRS = (
    "test tests idle_test site-packages dist-packages turtledemo encodings pgen2 __pycache__ "
    "config-3.11-x86_64-linux-gnu lib-dynload"
).split()
PARAGRAPH_CHARS = (120, 380)
FUNCTION_LINES = (4, 14)
FUNCTION_CHARS = (120, 420)
MAX_REPEATED_NGRAMS = 0.20
# Characters that mark grammar, tables, code or markup rather than prose.
NOT_PROSE = re.compile(r"::=|>>>|\.\.\. |\|\||--{2,}|={2,}|\*\*|`|[{}<>\\|~^@#$%=+]|[^\x20-\x7e]")
CURLY = {"\u2019": "'", "\u2018": "'", "\u201c": '"', "\u201d": '"', "\u2026": "..."}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
SENTENCE_END = re.compile(r"(?<=[a-z)\"'][.!?]) +(?=[A-Z])")


def _modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield (source, tree) for every standard-library module that parses."""
    root = Path(os.__file__).parent
    for folder, subdirs, files in os.walk(root):
        subdirs[:] = sorted(d for d in subdirs if d not in SKIPPED_DIRS)
        for name in sorted(files):
            if not name.endswith(".py") or name.startswith("_sysconfigdata"):
                continue
            try:
                source = (Path(folder) / name).read_text(encoding="utf-8")
                tree = ast.parse(source)
            except (SyntaxError, UnicodeDecodeError):
                continue
            yield source, tree


def _documented(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield whatever in a module may have a docstring; expressions, which may not, are skipped."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, DOCUMENTED):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting.extend(getattr(node, name, ()))


def _prose_pieces(block: str) -> Iterator[str]:
    """Yield runs of whole sentences, of the wanted length, from one block of text."""
    low, high = PARAGRAPH_CHARS
    lines = block.splitlines()
    # Aligned columns and ragged indents are tables or code, not prose.
    indents = {len(line) - len(line.lstrip()) for line in lines[1:]}
    if len(indents) > 1 or any(re.search(r"\S {3,}\S", line) for line in lines):
        return
    text = re.sub(r"\s+", " ", block).strip()
    for curly, plain in CURLY.items():
        text = text.replace(curly, plain)
    text = re.sub(r"^(\* |- |\d+\. )", "", text).replace('"', "")
    text = re.sub(r"\*(\w[^*]*)\*", r"\1", text)
    run = ""
    for sentence in [*SENTENCE_END.split(text), ""]:
        usable = _is_sentence(sentence)
        if usable and len(run) + len(sentence) < high:
            run = f"{run} {sentence}".strip()
            continue
        if low <= len(run) <= high:
            yield run
        run = sentence if usable else ""


def _is_sentence(text: str) -> bool:
    """Return whether text is a plain English sentence, mostly of lower-case words."""
    ends = re.match(r"[A-Z]", text) and re.search(r"[a-z)][.!?]$", text)
    if not ends or NOT_PROSE.search(text):
        return False
    words = text.split()
    plain = sum(bool(re.fullmatch(r"[A-Za-z][a-z']*[,.;:]?", word)) for word in words)
    return len(words) >= 4 and plain / len(words) > 0.75


def local_names(tree: ast.AST, source: str) -> list[str]:
    """Return renamable locals and parameters of a function, used at least twice."""
    bound: set[str] = set()
    kept_names = {"self", "cls", "_"}
    uses: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            uses[node.id] += 1
            if isinstance(node.ctx, ast.Store):
                bound.add(node.id)
        elif isinstance(node, ast.arg):
            uses[node.arg] += 1
            bound.add(node.arg)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            kept_names.update(node.names)
        elif isinstance(node, ast.keyword) and node.arg:
            kept_names.add(node.arg)
    # A word also found as an attribute, in a string or a comment would be ambiguous.
    return [
        name
        for name in sorted(bound - kept_names)
        if 2 <= uses[name] == len(re.findall(rf"\b{name}\b", source))
    ]


def _module_functions(source: str, tree: ast.Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (source, renamable names) of the usable functions of one module.

    Sources are dedented, decorators and docstring left out.
    """
    lines = source.split("\n")
    for node in _documented(tree):
        if not isinstance(node, ast.FunctionDef) or node.end_lineno - node.lineno > 60:
            continue
        kept = lines[node.lineno - 1 : node.end_lineno]
        if ast.get_docstring(node) is not None:
            doc = node.body[0]
            del kept[doc.lineno - node.lineno : doc.end_lineno - node.lineno + 1]
        text = textwrap.dedent("\n".join(line.rstrip() for line in kept if line.strip()))
        if not _wanted_function(text):
            continue
        try:
            names = local_names(ast.parse(text), text)
        except SyntaxError:
            continue
        if names:
            yield text, tuple(names)


def _wanted_function(text: str) -> bool:
    """Return whether a function has the wanted size and variety.

    Few of its 4-token windows may have occurred earlier in it.
    """
    (fewest, most), (least, longest) = FUNCTION_LINES, FUNCTION_CHARS
    sized = fewest <= text.count("\n") + 1 <= most and least <= len(text) <= longest
    if not sized or not text.isascii():
        return False
    tokens = re.findall(r"\w+|[^\w\s]", text)
    grams = list(zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False))
    return bool(grams) and 1 - len(set(grams)) / len(grams) <= MAX_REPEATED_NGRAMS


@lru_cache(maxsize=1)
def _extracted() -> tuple[tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]]:
    """Read the library once; return its paragraphs and functions, distinct and sorted."""
    from pydoc_data.topics import topics

    documents, code = list(topics.values()), {}
    for source, tree in _modules():
        documents += [ast.get_docstring(node) or "" for node in _documented(tree)]
        code.update(_module_functions(source, tree))
    blocks = {block for text in documents for block in re.split(r"\n\s*\n", text)}
    prose = {piece for block in blocks for piece in _prose_pieces(block)}
    return tuple(sorted(prose)), tuple(sorted(code.items()))


def paragraphs() -> tuple[str, ...]:
    """Return the distinct prose paragraphs, sorted."""
    return _extracted()[0]


def functions() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return (source, renamable names) of the distinct usable functions, sorted."""
    return _extracted()[1]


def stdlib_provenance() -> dict:
    """Describe the extracted text: interpreter, counts and a digest."""
    texts = sorted([*paragraphs(), *(source for source, _ in functions())])
    return {
        "python_version": platform.python_version(),
        "paragraphs": len(paragraphs()),
        "functions": len(functions()),
        "sha256": hashlib.sha256("\0".join(texts).encode()).hexdigest(),
    }
