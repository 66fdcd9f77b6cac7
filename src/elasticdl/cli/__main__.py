"""`python -m elasticdl.cli` is `elasticdl`."""

from elasticdl.cli.main import main

main()
