"""A plain mutator: no coverage, no library, the same inputs for the same seed.

`inputs` yields mutants of a corpus; `main` runs a target for some seconds and saves what breaks it:
    python tests/hostile/fuzz/fuzz_zmtp.py traffic --seconds 60 --seed 7
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
NUMBERS = [0, 1, 2, 3, 4, 6, 7, 9, 10, 0x16, 0x7f, 0x80, 0xfe, 0xff]
LENGTHS = [0, 1, 55, 56, 57, 255, 256, 8127, 8128, 8192, 65536, 1 << 20, 1 << 31, 1 << 32,
           (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
LIMIT = 4096


def read_corpus(name: str) -> list[bytes]:
    """The seeds of a target, in a fixed order."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def mutate(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """One to four small changes."""
    text = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(text))
        end = min(len(text), at + rng.choice([1, 1, 2, 4, 9, 40]))
        what = rng.randrange(8)
        if what == 0 and text:
            text[rng.randrange(len(text))] ^= 1 << rng.randrange(8)
        elif what == 1 and text:
            text[rng.randrange(len(text))] = rng.choice(NUMBERS)
        elif what == 2:
            text[at:at] = bytes(rng.choice(NUMBERS) for _ in range(rng.randint(1, 4)))
        elif what == 3:
            del text[at:end]
        elif what == 4:
            text[at:at] = text[at:end] * rng.randint(1, 5)
        elif what == 5:
            text[at:at + 8] = rng.choice(LENGTHS).to_bytes(8, "big")
        elif what == 6:
            text[at:] = other[rng.randint(0, len(other)):]
        else:
            text[at:at] = rng.randbytes(rng.choice([1, 8, 60, 300]))
    return bytes(text[:LIMIT])


def inputs(corpus: list[bytes], seed: int) -> Iterator[bytes]:
    """Mutants for ever; some become parents themselves."""
    rng = random.Random(seed)
    pool = list(corpus)
    while True:
        data = mutate(rng.choice(pool), rng.choice(pool), rng)
        yield data
        if rng.random() < 0.02:
            if len(pool) < 4 * len(corpus):
                pool.append(data)
            else:
                pool[rng.randrange(len(corpus), len(pool))] = data


def main(targets: dict[str, Callable[[bytes], None]],
         seeds: dict[str, list[bytes]] | None = None) -> None:
    """seeds: of each target, for those that have no corpus."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target", choices=targets)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    end, count = time.monotonic() + asked.seconds, 0
    corpus = seeds[asked.target] if seeds else read_corpus(asked.target)
    for data in inputs(corpus, asked.seed):
        if time.monotonic() > end:
            break
        try:
            targets[asked.target](data)
        except Exception:
            found = Path(f"{asked.target}-{asked.seed}-{count}.bin")
            found.write_bytes(data)
            print(f"broken by {found}", file=sys.stderr)
            raise
        count += 1
    print(f"{asked.target}: {count} inputs, none broke it")
