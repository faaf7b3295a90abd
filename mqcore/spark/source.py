"""The data source that Spark calls: which reader or writer for which options."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from mqcore.spark.columns import full_schema, live_schema
from mqcore.spark.options import BATCH, LIVE, STREAM, WRITE, check, check_read, is_live


class MqcoreSource(DataSource):
    """format("mqcore")"""

    @classmethod
    def name(cls) -> str:
        return "mqcore"

    def schema(self) -> StructType:
        check_read(self.options)
        if is_live(self.options):
            return live_schema()
        headers, stamps = (str(self.options.get(name, "false")).lower() == "true"
                           for name in ("includeHeaders", "includeStamps"))
        return full_schema(headers, stamps)

    def reader(self, schema: StructType) -> Any:
        from mqcore.spark.live import LiveReader
        from mqcore.spark.read import FilteredReader, Reader
        from mqcore.spark.versions import check_filters

        if is_live(self.options):
            return LiveReader(schema, check(self.options, LIVE))
        options = check(self.options, BATCH)
        check_filters(options.filterPushdown)
        return (FilteredReader if options.filterPushdown else Reader)(schema, options)

    def streamReader(self, schema: StructType) -> Any:
        from mqcore.spark.stream import StreamReader

        return StreamReader(schema, check(self.options, STREAM))

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from mqcore.spark import journal_sink, socket_sink

        options = check(self.options, WRITE)
        sink = socket_sink if options.endpoints else journal_sink
        return sink.BatchSink(schema, options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        from mqcore.spark import journal_sink, socket_sink

        options = check(self.options, WRITE)
        sink = socket_sink if options.endpoints else journal_sink
        return sink.StreamSink(schema, options, overwrite)


DefaultSource = MqcoreSource
