"""Many runs as one: a plan of cells (sweep, matrix), carried out so that it can be killed and goes on where it was."""
