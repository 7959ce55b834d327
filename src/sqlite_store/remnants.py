"""Remnants of deleted rows in a database file, found and overwritten.

Theory of operation. ``secure_delete`` overwrites a deleted row where it is. But SQLite moves rows between pages as
tables grow and shrink, and what it moves stays behind, in the part of the old page that no row uses: about one deleted
row of a hundred can still be read in the file. That part lies between the page's list of cells and its first cell.
SQLite reads nothing there, so zeros change nothing.

Whoever clears must make sure that the file is all there is: an empty write-ahead log, nobody who writes, and no cached
page that is written later. The file stays open for as long as the database is: closing it gives up the locks that
SQLite holds on it in this process.

Source: "Database File Format" of the SQLite documentation, sections 1.3, 1.6 and 1.8.
"""

import os
from collections.abc import Iterable
from pathlib import Path

CAN_CLEAR = hasattr(os, "pread")
"""Whether the system reads and writes at a place of an open file; Windows does not."""
_FILE_HEADER_BYTES = 100
_SMALLEST_PAGE_BYTES = 512
_LIST_AT = {2: 12, 5: 12, 10: 8, 13: 8}
"""Where the list of cells begins on a page, by its first byte; pages of other kinds have none."""


class Remnants:
    """Finds and clears the unused parts of the pages of one file that are not empty.

    Args:
        path: of the database, with an empty write-ahead log whenever it is searched.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR)
        self._page_bytes = 0
        self._has_map = False

    def close(self) -> None:
        """Close the file, after the database."""
        os.close(self._file)

    def find(self) -> list[int]:
        """List the numbers of the pages that have remnants; a few milliseconds for a thousand pages."""
        header = os.pread(self._file, _FILE_HEADER_BYTES, 0)
        self._page_bytes = {1: 65536}.get(found := int.from_bytes(header[16:18]), found)
        self._has_map = any(header[52:56])
        if self._page_bytes < _SMALLEST_PAGE_BYTES:
            return []  # no database, or a damaged one
        count = os.fstat(self._file).st_size // self._page_bytes
        return [number for number in range(1, count + 1) if self._find_on(number) is not None]

    def clear(self, numbers: Iterable[int]) -> None:
        """Overwrite the remnants of these pages, which were found before, with zeros."""
        for number in numbers:
            found = self._find_on(number)
            if found is not None:
                begin, end = found
                os.pwrite(self._file, bytes(end - begin), (number - 1) * self._page_bytes + begin)

    def _find_on(self, number: int) -> tuple[int, int] | None:
        """Find where a page's unused part begins and ends; None when it is empty, or the page has none."""
        if self._is_map(number):
            return None
        page = os.pread(self._file, self._page_bytes, (number - 1) * self._page_bytes)
        head = _FILE_HEADER_BYTES if number == 1 else 0
        if len(page) < self._page_bytes or page[head] not in _LIST_AT:
            return None
        begin = head + _LIST_AT[page[head]] + 2 * int.from_bytes(page[head + 3 : head + 5])
        end = int.from_bytes(page[head + 5 : head + 7]) or 65536
        if not begin < end <= len(page) or page.count(0, begin, end) == end - begin:
            return None
        cells = (int.from_bytes(page[at : at + 2]) for at in range(head + _LIST_AT[page[head]], begin, 2))
        return (begin, end) if all(end <= cell < len(page) for cell in cells) else None

    def _is_map(self, number: int) -> bool:
        """Return whether a page is one of those that incremental vacuum keeps its pointers on."""
        return self._has_map and number > 1 and (number - 2) % (self._page_bytes // 5 + 1) == 0
