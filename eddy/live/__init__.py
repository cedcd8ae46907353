"""Live engines that outlast their process: sealed files in a scratch directory, mapped by the next process."""
