"""What came of simulated runs: measures over many seeds, a picture of the moment, a page."""
