"""Measures jsclient against its peers: whole client processes, interleaved rounds, CPU per message first."""
