"""Scripts that the Python of another environment runs: they import nothing of this project, and it none of them."""
