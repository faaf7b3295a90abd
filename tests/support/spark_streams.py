"""Streaming queries that end."""


def run(df, checkpoint, sink, **options):
    """All that is available; how many rows each batch had."""
    writer = df.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    query = writer.format(sink).start()
    try:
        assert query.awaitTermination(250)
    finally:
        query.stop()
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
