"""Sorted keys in pieces, so that adding one doesn't move all the others."""

from bisect import bisect_left, insort

Key = tuple[int, ...]

_MAX_PIECE = 512


class SortedKeys:
    """A sorted set of distinct tuples; adding and removing move at most a piece of 512 keys."""

    __slots__ = ("_lasts", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[list[Key]] = []
        self._lasts: list[Key] = []  # the largest key of each piece

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, key: Key) -> None:
        """Insert a key that isn't there."""
        if not self._pieces:
            self._pieces.append([key])
            self._lasts.append(key)
            return
        number = min(bisect_left(self._lasts, key), len(self._pieces) - 1)
        piece = self._pieces[number]
        insort(piece, key)
        if len(piece) > _MAX_PIECE:
            half = len(piece) // 2
            self._pieces.insert(number + 1, piece[half:])
            self._lasts.insert(number + 1, piece[-1])
            del piece[half:]
        self._lasts[number] = piece[-1]

    def remove(self, key: Key) -> None:
        """Take a key out that is there."""
        number = bisect_left(self._lasts, key)
        piece = self._pieces[number]
        del piece[bisect_left(piece, key)]
        if piece:
            self._lasts[number] = piece[-1]
        else:
            del self._pieces[number], self._lasts[number]

    def neighbours(self, key: Key) -> tuple[Key, ...]:
        """Return the largest key below and the smallest not below a key, as far as there are such.

        No other key has a longer beginning in common with it than the better of the two.
        """
        number = bisect_left(self._lasts, key)
        if number == len(self._pieces):
            return (self._lasts[-1],) if self._lasts else ()
        piece = self._pieces[number]
        place = bisect_left(piece, key)
        if place:
            return piece[place - 1], piece[place]
        if number:
            return self._lasts[number - 1], piece[0]
        return (piece[0],)
