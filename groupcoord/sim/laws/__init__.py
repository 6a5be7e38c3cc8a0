"""What must hold in every simulated run, as only the world around coordinators and consumers can see it."""
