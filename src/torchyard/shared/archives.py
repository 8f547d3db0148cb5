"""Read tar files that anybody may have made.

Owns: the size of a member's header.
Leaves: how many members and bytes there may be, and where they go, to the callers.
Always: no header is parsed that is larger than a long name needs. Python before 3.10.15, 3.11.10
and 3.12.6 parses some in time that grows with the square of their size: what reads an upload has a
limit of time, too.

Source: https://nvd.nist.gov/vuln/detail/CVE-2024-6232
"""

from __future__ import annotations

import tarfile

# Two names of 4,096 bytes, and the times of a file.
LONGEST_HEADER_BYTES = 16 << 10
_HEADERS = frozenset(
    {
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
    }
)


class BoundedTarInfo(tarfile.TarInfo):
    """For `tarfile.open(…, tarinfo=BoundedTarInfo)`.

    Raises:
        tarfile.ReadError: a header is too long, or of a sparse file.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> BoundedTarInfo:
        """Read the first block of a member, before anything that follows it is parsed."""
        member = super().frombuf(buf, encoding, errors)
        if member.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("a member is a sparse file")
        if member.type in _HEADERS and not 0 <= member.size <= LONGEST_HEADER_BYTES:
            raise tarfile.ReadError("a member has a header that is too long")
        return member
