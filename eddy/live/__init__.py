"""Live engines: runtimes in mapped files, which processes of one host load and save in turn."""
