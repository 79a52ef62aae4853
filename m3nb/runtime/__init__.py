"""Everything that runs: the worker, one pause (coordinator), the gateway agents see, the client of the real server."""
