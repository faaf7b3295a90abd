"""`python -m mqcore`: the command `mq`, for where scripts are not on the PATH."""

from mqcore.cli import main

main()
