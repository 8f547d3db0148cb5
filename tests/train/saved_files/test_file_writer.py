"""What the writer's process does when its rank dies."""

from __future__ import annotations

import array
import json
import os
import socket
from pathlib import Path

from torchyard.train.saved_files import drafts, file_writer

CONTENT = b"weights"


def test_a_rank_that_dies_with_reports_unread_loses_no_save(tmp_path: Path) -> None:
    memory = os.memfd_create("copy")
    os.write(memory, CONTENT)
    target, draft = tmp_path / "model.pt", tmp_path / "draft"
    message = {
        "number": 1, "path": str(target), "draft": str(draft), "size_bytes": len(CONTENT),
        "rank": "0", "record": "", "saved_at": 0.0, "blocked_s": 0.0,
    }  # fmt: skip
    rank, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    descriptor = drafts.begin(draft)
    rights = array.array("i", [memory, descriptor])
    rank.sendmsg([json.dumps(message).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    writer.send(b'{"told": "nobody reads it"}')
    rank.close()
    file_writer.main(writer.detach())
    assert target.read_bytes() == CONTENT
    os.close(descriptor)
    os.close(memory)
