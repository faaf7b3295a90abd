"""Follow one message through processes, by the headers of W3C Trace Context (level 1).

    from mqcore import trace

    with trace.span("order"):               # begins a trace, or continues the current one
        net.request("adder", b"1 2")        # carries it; the handler's work belongs to it

Services of a cluster, work queues and bridges carry the current trace by themselves. A journal does
so with `journal.open(..., trace=True)`. Anything else carries `headers()` and is read with
`extract()`. While a monitor runs (MQCORE_MONITOR=1), the process keeps its latest spans, and
`mq trace TRACE_ID` shows them. Without a current trace, messages carry none.
"""

from mqcore.trace.carry import extract, from_text, headers, to_text
from mqcore.trace.flow import Span, current, span, use
from mqcore.trace.recent import SpanRecord, spans, stats
from mqcore.trace.traceparent import TraceContext, TraceMalformed

__all__ = [
    "Span", "SpanRecord", "TraceContext", "TraceMalformed", "current", "extract", "from_text",
    "headers", "span", "spans", "stats", "to_text", "use",
]
