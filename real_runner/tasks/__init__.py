"""Tasks of the command line: one file each, `run(config, log)`."""
