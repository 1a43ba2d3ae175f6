#!/usr/bin/env python3
"""Verifies an Exeat ledger export without Exeat: verify.py EXPORT PUBLIC_KEY_PEM [CHECKPOINTS] (needs `cryptography`).
CHECKPOINTS are heads kept from before: a ledger that was cut or rewritten since shows against them. Prints `verified N` and exits 0, or `first bad N` (0 is the header) and exits 4. See ledger.md."""
import base64, hashlib, json, re, sys
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def whole(text):
    assert re.fullmatch("-?[0-9]+", text) and abs(int(text)) < 2**53, "an integer that every reader keeps"
    return int(text)


def records(lines, org, seq, prev, edges, ended):
    """Yields the next seq and the head before it; stops at the line after the last record."""
    before = seq
    for line in lines:
        yield seq, prev
        if line.startswith(b'{"checkpoint":'):
            return
        raw, stated = re.fullmatch(rb'\{"record":(\{.{,65534}),"hash":"([0-9a-f]{64})"\}', line).groups()
        rec = json.loads(raw, parse_int=whole, parse_float=whole, parse_constant=whole)
        form = json.dumps(rec, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        prev = sha(b"exeat-ledger-v1", prev, sha(raw))
        assert raw == form and (rec["v"], rec["org"], rec["seq"]) == (1, org, seq) and prev.hex() == stated.decode()
        turn = tuple(rec.get(k) for k in ("task", "step", "hop", "turn"))
        if rec["kind"] == "edge":  # one edge, one edge record
            assert (turn, rec["data"]["dir"]) not in edges.values()
            edges[seq] = (turn, rec["data"]["dir"])
        elif "edge" in rec or rec["kind"] in ("verdict", "approval", "attempt", "outcome", "cost"):
            assert 0 < rec["edge"] < before or edges[rec["edge"]][0] == turn
            assert rec["kind"] != "outcome" or rec["edge"] not in ended or rec["edge"] < before
            ended.add(rec["edge"] if rec["kind"] == "outcome" else 0)
        seq += 1
    yield seq, prev
    raise AssertionError("no checkpoint")


def verify(export, key, held="", seq=0):
    try:
        heads = {}
        *lines, rest = export.split(b"\n")
        top = json.loads(lines[0])
        org, start = top["org"], top["from"]
        assert top["export"] == "exeat-ledger-v1" and (start > 1) == ("prev" in top) and start > 0
        for seq, head in records(lines[1:], org, start, bytes.fromhex(top.get("prev", "00" * 32)), {}, set()):
            heads[seq - 1] = head
        for size, kept in re.findall(f"^exeat/{org}\n([0-9]+)\n(.+)\n", held, re.M):
            seq = seq if heads.get(int(size)) == base64.b64decode(kept) else min(seq, int(size))
            assert seq > int(size), "every head that is held is there"
        assert len(lines) == seq - start + 2 and not rest, "the checkpoint is the last line"
        text, signatures = json.loads(lines[-1])["checkpoint"].rsplit("\n\n", 1)
        origin, size, note_head, _at = text.split("\n")
        public = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
        ours = sha(origin.encode(), b"\n\x01", public)[:4]
        mine = [s for s in map(base64.b64decode, re.findall(f"^\u2014 {origin} (.+)$", signatures, re.M)) if s[:4] == ours]
        assert mine and origin == f"exeat/{org}", "signed by this key, for this org"
        [key.verify(s[4:], f"{text}\n".encode()) for s in mine]
        seq = min(seq, int(size) + 1) if int(size) != seq - 1 else seq - 1  # cut, beyond, or forked
        assert int(size) == seq and base64.b64decode(note_head) == head
        return f"verified {seq - start + 1}", 0
    except Exception:
        return f"first bad {seq}", 4


if __name__ == "__main__":
    export, pem = (open(path, "rb").read() for path in sys.argv[1:3])
    held = open(sys.argv[3], encoding="utf-8").read() if len(sys.argv) > 3 else ""
    said, code = verify(export, load_pem_public_key(pem), held)
    print(said)
    sys.exit(code)
