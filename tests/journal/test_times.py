"""Times that are far away, and those that no journal takes."""

import numpy as np
import pytest
from journal_case import contents

from mqcore import journal
from mqcore.errors import UsageError
from mqcore.journal.records import Records

NOT_YET = 253402300800          # seconds: the year 10000
HIGHEST = (1 << 63) - 1         # us


def of(us, unit="us"):
    return np.array([0, us, 5]).view(f"datetime64[{unit}]")


def append(log, times):
    log.append_batch(b"abcdef", np.array([0, 2, 4, 6]), times=times)


@pytest.mark.parametrize("times", [
    of(HIGHEST), of(-HIGHEST), of(NOT_YET * 10**6), of(-NOT_YET * 10**6 - 1), of(NOT_YET, "s"),
    of(1 << 62, "ms"), of(8030, "Y"), np.array([0.0, NOT_YET, 5.0])])
def test_beyond_the_year_9999_nothing_is_stored(tmp_path, times):
    """A block with the highest number of microseconds made its journal unreadable."""
    with journal.open(tmp_path, "a") as log:
        with pytest.raises(UsageError, match="beyond the year 9999"):
            append(log, times)
        append(log, of(1))
    assert contents(tmp_path) == [b"ab", b"cd", b"ef"]
    journal.open(tmp_path, "a").close()


@pytest.mark.parametrize("us", [NOT_YET * 10**6 - 1, -NOT_YET * 10**6 + 1])
def test_within_it_they_are_found(tmp_path, us):
    with journal.open(tmp_path, "a") as log:
        append(log, of(us))
        append(log, np.zeros(3, "datetime64[ns]"))
        log.append_batch(b"", np.array([0]), times=np.zeros(0, "datetime64[us]"))
    with journal.open(tmp_path) as reader:
        assert [int(t) for r in reader.batches() for t in r._microseconds] == [0, us, 5, 0, 0, 0]
        assert reader.at(us / 1e6 - 1) == (1 if us > 0 else 0)


def test_the_highest_number_is_read_like_any_other(tmp_path):
    """A copy keeps the times that its source has."""
    with journal.open(tmp_path, "a") as log:
        append(log, of(1))
    with journal.open(tmp_path) as reader:
        [found] = reader.batches()
        columns = {**found._columns, "times": np.full(3, HIGHEST)}
    with journal.open(tmp_path, "a") as log:
        log.append_records(Records(0, columns, 0, 3, "default", 0))
        log.commit()
    for _ in range(2):
        with journal.open(tmp_path, "a") as log:
            log.append(b"last")
    assert contents(tmp_path) == [b"ab", b"cd", b"ef"] * 2 + [b"last"] * 2
    with journal.open(tmp_path) as reader:
        assert reader.at(9e11) == 3 and reader.end == 8
    assert journal.verify(tmp_path / "default" / "0").findings == []
