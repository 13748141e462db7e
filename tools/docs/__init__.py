"""What builds the site: `make docs`. Pages lie in tools/docs/pages, chapters beside the packages they are about."""
