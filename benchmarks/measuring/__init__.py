"""How it is measured: processes that take turns, the machine's own peaks, memory, and what neighbours did."""
