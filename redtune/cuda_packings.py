"""How NVIDIA GPUs fold narrow integers a word at a time: dot products of bytes, and the larger of two 16-bit halves.

Bytes are ordered as the upper bytes of halves: once as they lie, once moved up by a byte. What is below them in a half
only decides between halves with the same upper byte, so it never shows.
"""

from __future__ import annotations

from collections.abc import Iterator

from redtune.packing import Packing

# One for every byte of a word that is not zero: the seven lower bits carry into the eighth.
_NOT_ZERO = "(((word & 0x7f7f7f7fu) + 0x7f7f7f7fu | word) >> 7 & 0x01010101u)"
_BYTES = tuple(f"{{0}} >> {shift} & 0xffu" for shift in (0, 8, 16, 24))
_HALVES = ("{0} & 0xffffu", "{0} >> 16")
_UPPER_BYTES = ("{1} >> 8 & 0xffu", "{0} >> 8 & 0xffu", "{1} >> 24", "{0} >> 24")
_TYPES = {
    "int8": "signed char",
    "uint8": "unsigned char",
    "bool": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
}
_LOWEST = {"s": "0x80008000u", "u": "0u"}
_HIGHEST = {"s": "0x7fff7fffu", "u": "0xffffffffu"}
_BITS = {"and": ("&", "0xffffffffu"), "or": ("|", "0u"), "xor": ("^", "0u")}


def _added(product: str) -> Packing:
    return Packing(("0u",), (product,), ("(int){0}",))


def _sums() -> Iterator[tuple[tuple[str, str], Packing]]:
    for dtype in ("int8", "uint8", "bool"):
        sign, c = ("int", "(int)") if dtype == "int8" else ("unsigned int", "")
        ones = "0x01010101" if c else "0x01010101u"
        yield ("sum of x", dtype), _added(f"(unsigned int)__dp4a({c}word, {ones}, ({sign}){{0}})")
        squares = f"(unsigned int)__dp4a({c}word, {c}word, ({sign}){{0}})"
        yield ("sum of x * x", dtype), _added(squares)
        both = (f"(unsigned int)__dp4a({c}word, {ones}, ({sign}){{0}})", squares)
        yield ("moments", dtype), Packing(("0u", "0u"), both, ("(int){0}", "(int){1}"), has_second=True)
        yield ("sum of x != 0", dtype), _added(f"__dp4a({_NOT_ZERO}, 0x01010101u, {{0}})")
    yield ("sum of x", "int16"), _added("(unsigned int)__dp2a_lo((int)word, 0x0101, (int){0})")
    yield ("sum of x", "uint16"), _added("__dp2a_lo(word, 0x0101u, {0})")


def _orders() -> Iterator[tuple[tuple[str, str], Packing]]:
    for dtype, type_ in _TYPES.items():
        own = "s" if dtype.startswith("int") else "u"
        for what, which, starts, sign in (
            ("max", "max", _LOWEST, own),
            ("min", "min", _HIGHEST, own),
            ("least", "min", _HIGHEST, "u"),
        ):
            start = starts[sign]
            call = f"__v{which}{sign}2({{0}}, %s)"
            if "16" in dtype:
                left = tuple(f"({type_})({text})" for text in _HALVES)
                yield (what, dtype), Packing((start,), (call % "word",), left)
            else:
                left = tuple(f"({type_})({text})" for text in _UPPER_BYTES)
                yield (what, dtype), Packing((start, start), (call % "word", call % "word << 8"), left)


def _bits() -> Iterator[tuple[tuple[str, str], Packing]]:
    for dtype, type_ in _TYPES.items():
        left = tuple(f"({type_})({text})" for text in (_HALVES if "16" in dtype else _BYTES))
        for what, (sign, start) in _BITS.items():
            yield (what, dtype), Packing((start,), (f"{{0}} {sign} word",), left)


PACKINGS = dict([*_sums(), *_orders(), *_bits()])
