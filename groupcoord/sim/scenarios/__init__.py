"""What a simulated world is like and what happens in it: written in a file, or drawn from a seed."""
