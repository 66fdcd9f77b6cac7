"""FarmHash's Fingerprint64 of the decimal text of whole numbers, in operations of torch, which can be exported.

Unsigned 64-bit arithmetic is done in int64: sums and products wrap in the same way, shifts to the right are masked.
Tests hold it to `elasticdl.features.transforms.fingerprint`.
"""

from __future__ import annotations

import torch
from torch import Tensor

MAX_DIGITS = 19  # digits of the longest int64
MAX_LETTERS = MAX_DIGITS + 1  # with its sign
MAX_HASHED_BYTES = 64  # longer texts are not hashed here


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


K0, K1, K2 = (_signed(number) for number in (0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F))


def hash_buckets(columns: list[Tensor], separator: str, bins: int) -> Tensor:
    """Returns the fingerprints of the joined decimal texts of the columns modulo `bins`, int64."""
    shape = columns[0].shape
    letters, lengths = decimal_digits(columns[0].reshape(-1))
    for column in columns[1:]:
        letters, lengths = _join_texts(letters, lengths, separator, *decimal_digits(column.reshape(-1)))
    hashed = _hash_texts(letters, lengths)
    half = _shift(hashed, 1)
    return ((half % bins * 2 + (hashed & 1)) % bins).reshape(shape)


def decimal_digits(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the letters [numbers, 20] of each number from the left, and their count."""
    quotient, digits, count = numbers.to(torch.int64), [], torch.ones_like(numbers, dtype=torch.int64)
    is_negative = (quotient < 0).to(torch.int64)
    for index in range(MAX_DIGITS):
        if index:
            count = count + (quotient != 0).to(torch.int64)
        digits.append(torch.fmod(quotient, 10).abs())
        quotient = torch.div(quotient, 10, rounding_mode="trunc")
    lengths = count + is_negative
    from_right = lengths[:, None] - 1 - torch.arange(MAX_LETTERS, device=numbers.device)
    letters = torch.gather(torch.stack(digits, 1), 1, from_right.clamp(0, MAX_DIGITS - 1)) + ord("0")
    is_sign = (torch.arange(MAX_LETTERS, device=numbers.device) == 0) & (is_negative[:, None] == 1)
    return torch.where(is_sign, ord("-"), letters), lengths


def _join_texts(
    left: Tensor, left_lengths: Tensor, separator: str, right: Tensor, right_lengths: Tensor
) -> tuple[Tensor, Tensor]:
    between = separator.encode()
    width = left.shape[1] + len(between) + right.shape[1]
    letters = torch.nn.functional.pad(left, (0, width - left.shape[1]))
    offsets = torch.arange(width, device=left.device) - left_lengths[:, None]  # from the end of the left text
    for index, letter in enumerate(between):
        letters = torch.where(offsets == index, letter, letters)
    offsets = offsets - len(between)
    right_letters = torch.gather(right, 1, offsets.clamp(0, right.shape[1] - 1))
    return torch.where(offsets >= 0, right_letters, letters), left_lengths + len(between) + right_lengths


def _hash_texts(letters: Tensor, lengths: Tensor) -> Tensor:
    """Computes the hash for every class of length; each row keeps that of its own class."""
    width = letters.shape[1]
    hashed = torch.where(lengths < 4, _hash_to_3(letters, lengths), _hash_to_7(letters, lengths))
    hashed = torch.where(lengths < 8, hashed, _hash_to_16(letters, lengths))
    if width > 16:
        hashed = torch.where(lengths <= 16, hashed, _hash_to_32(letters, lengths))
    if width > 32:
        hashed = torch.where(lengths <= 32, hashed, _hash_to_64(letters, lengths))
    return hashed


def _fetch(letters: Tensor, starts: Tensor, size: int = 8) -> Tensor:
    """Returns `size` bytes from `starts` on as one number. For rows of another class, whose text may end before, it
    is meaningless and not used."""
    indices = (starts[:, None] + torch.arange(size, device=letters.device)).clamp(0, letters.shape[1] - 1)
    octets = torch.gather(letters, 1, indices)
    number = octets[:, 0]
    for index in range(1, size):
        number = number | (octets[:, index] << (8 * index))
    return number


def _shift(value: Tensor, by: int) -> Tensor:
    return (value >> by) & ((1 << (64 - by)) - 1)


def _rotate(value: Tensor, by: int) -> Tensor:
    return _shift(value, by) | (value << (64 - by))


def _mix(value: Tensor) -> Tensor:
    return value ^ _shift(value, 47)


def _pair(u: Tensor, v: Tensor, multiplier: Tensor) -> Tensor:
    return _mix((v ^ _mix((u ^ v) * multiplier)) * multiplier) * multiplier


def _hash_to_3(letters: Tensor, lengths: Tensor) -> Tensor:
    first, middle, last = (_fetch(letters, index, 1) for index in (lengths * 0, lengths >> 1, lengths - 1))
    return _mix((first + (middle << 8)) * K2 ^ (lengths + (last << 2)) * K0) * K2


def _hash_to_7(letters: Tensor, lengths: Tensor) -> Tensor:
    head, tail = _fetch(letters, lengths * 0, 4), _fetch(letters, lengths - 4, 4)
    return _pair(lengths + (head << 3), tail, K2 + lengths * 2)


def _hash_to_16(letters: Tensor, lengths: Tensor) -> Tensor:
    multiplier = K2 + lengths * 2
    a, b = _fetch(letters, lengths * 0) + K2, _fetch(letters, lengths - 8)
    return _pair(_rotate(b, 37) * multiplier + a, (_rotate(a, 25) + b) * multiplier, multiplier)


def _hash_to_32(letters: Tensor, lengths: Tensor) -> Tensor:
    multiplier, start = K2 + lengths * 2, lengths * 0
    a, b = _fetch(letters, start) * K1, _fetch(letters, start + 8)
    c, d = _fetch(letters, lengths - 8) * multiplier, _fetch(letters, lengths - 16) * K2
    return _pair(_rotate(a + b, 43) + _rotate(c, 30) + d, a + _rotate(b + K2, 18) + c, multiplier)


def _hash_to_64(letters: Tensor, lengths: Tensor) -> Tensor:
    multiplier, start = K2 + lengths * 2, lengths * 0
    a, b = _fetch(letters, start) * K2, _fetch(letters, start + 8)
    c, d = _fetch(letters, lengths - 8) * multiplier, _fetch(letters, lengths - 16) * K2
    y = _rotate(a + b, 43) + _rotate(c, 30) + d
    z = _pair(y, a + _rotate(b + K2, 18) + c, multiplier)
    e, f = _fetch(letters, start + 16) * multiplier, _fetch(letters, start + 24)
    g, h = (y + _fetch(letters, lengths - 32)) * multiplier, (z + _fetch(letters, lengths - 24)) * multiplier
    return _pair(_rotate(e + f, 43) + _rotate(g, 30) + h, e + _rotate(f + a, 18) + g, multiplier)
