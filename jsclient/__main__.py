"""`python -m jsclient`: small operator commands for machines that have Python but not the NATS CLI."""

from jsclient.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
