"""Reports of simulated runs: measures over many seeds, timelines, HTML pages."""
