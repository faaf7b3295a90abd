"""What one message costs in the ZMTP codec alone, without sockets and threads.

python perf/micro/wire.py
"""

from mqcore.wire.probe import Probe

GREETING = bytes.fromhex("ff00000000000000017f") + b"\3\1NULL" + bytes(48) + b"\x04\x06\x05READY"


def main() -> None:
    print("body B  waiting  encode ns  decode ns   (best of 5)")
    for size, count in [
        (16, 1),
        (16, 10),
        (16, 1000),
        (56, 1000),
        (57, 1000),
        (256, 1000),
        (1000, 1000),
        (10000, 100),
    ]:
        probe = Probe()
        probe.start()
        probe.feed(GREETING)
        rounds = max(20, 20000 // count)
        runs = [probe.measure(bytes(size), count, rounds) for _ in range(5)]
        encode, decode = (min(run[i] for run in runs) for i in range(2))
        print(f"{size:6}  {count:7}  {encode:9.1f}  {decode:9.1f}")


if __name__ == "__main__":
    main()
