"""The parts of `mqcore.cluster.membership`: messages, seal, rules, failure detector, exchange."""
