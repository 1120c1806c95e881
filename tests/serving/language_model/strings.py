"""Random texts of many scripts, with all that tokenizers are known to differ in, and bytes that are no text."""

from __future__ import annotations

import unicodedata
from random import Random

_SPACES = [
    chr(code)
    for code in (*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
]
_NEARLY_SPACES = ["\u180e", "\u200b", "\u2060", "\ufeff", "\u200d", "\x1c", "\x1f", "\0"]
_POOLS = (
    ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "Hello", "World", "running", "internationalization", "I", "You", "we", "ThE"],
    ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'M", "'LL", "'lL", "'D", "'\u017f", "don't", "I'm", "we'll", "they'Re", "'x", "'", "''", "\u2019s"],
    ["0", "1", "7", "42", "123", "1234", "12345", "3.14", "1,000", "-5", "1e9", "0x1F", "\u0664\u0662", "\u09e7\u09e8\u09e9", "\u0967", "\u2460", "\u00bd", "\u2167", "\uff11\uff12", "\U0001d7d8", "\u4e09", "\u0bf0"],
    _SPACES + _NEARLY_SPACES,
    [" ", "  ", "   ", "\n", "\r\n", "\n\n", " \n", "\n ", "\t", "\t\t", " \r\n \r\n", "\r", " "],
    ["\u4f60\u597d\u4e16\u754c", "\u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8", "\ud55c\uad6d\uc5b4", "\u4e2d\u6587\uff0c\u3002", "\u3042\u308a\u304c\u3068\u3046"],
    ["\u0645\u0631\u062d\u0628\u0627", "\u0628\u0650\u0633\u0652\u0645\u0650", "\u05e9\u05dc\u05d5\u05dd", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u043f\u0440\u0438\u0432\u0435\u0442", "\u03b1\u03b2\u03b3", "\u10d2\u10d0", "\u12a0\u121b"],
    ["e\u0301", "a\u0308\u0323", "\u0301", "n\u0303o", "Z\u0351\u036b\u0343", "\u1100\u1161\u11a8", "caf\u00e9", "\u00df", "\u0130", "\u01c5", "\u02b0", "\u00aa", "stra\u00dfe"],
    ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f44d\U0001f3fd", "\U0001f1eb\U0001f1f7", "\u2764\ufe0f", "\U0001f3f4\U000e0067\U000e0062\U000e007f"],
    [".", ",", "!", "?", "...", "--", "()", "[]", "{}", "<>", "/*", "*/", "//", "==", "!=", "+=", "->", "::", ";;", '"', "`", "~", "@", "#", "$", "%", "^", "&", "*", "_", "|", "\\", "\u00ab", "\u00bb", "\u2014", "\u20ac", "\u00a9", "\u2211", "\u221e", "\u3010"],
    ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<reponame>", "<file_sep>", "<|im_end", "<|", "|>", "<|im_end|><|im_start|>", "<<|im_end|>>", "<|IM_END|>"],
    ["def", "f(x):", "return", "x*2", "if(a&&b){}", "http://a.b/c?d=e&f", "user@example.com", "C:\\dir", "#include<map>", "\u00e9\u00e8", "na\u00efve"],
)  # fmt: skip


def is_known(code: int) -> bool:
    """Whether a number is a character for Python's Unicode (14). Others differ by the tables that a library was built with."""
    return unicodedata.category(chr(code)) not in {"Cn", "Cs"}


def text(random: Random) -> str:
    """Returns a text; one in a thousand is long."""
    if random.random() < 0.001:
        return random.choice("a \n1\u00e9\u4e2d\U0001f600-") * random.randrange(1000, 5000)
    parts = []
    for _ in range(random.choice((0, 1, 2, 3, 5, 8, 12, 20))):
        kind = random.random()
        if kind < 0.1:
            parts.append(_any_character(random))
        elif kind < 0.13:
            parts.append(random.choice(random.choice(_POOLS)) * random.randrange(2, 30))
        else:
            parts.append(random.choice(random.choice(_POOLS)))
        if random.random() < 0.3:
            parts.append(" ")
    return "".join(parts)


def _any_character(random: Random) -> str:
    code = random.choice(
        (random.randrange(0x80), random.randrange(0x3000), random.randrange(0x10000), random.randrange(0x110000))
    )
    return chr(code) if is_known(code) else "\ufffd"


def no_text(random: Random) -> bytes:
    """Returns bytes of which some are no UTF-8: a text's with bytes changed, added and cut, or others' alone."""
    data = bytearray(text(random).encode()[: random.randrange(1, 200)])
    for _ in range(random.randrange(1, 6)):
        at = random.randrange(len(data) + 1)
        data[at:at] = random.choice(
            (b"\x80", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe4\xb8", b"\xf0\x9f\x98", b"\xff", b"\xf5", random.randbytes(3))
        )  # fmt: skip
    return bytes(data)
