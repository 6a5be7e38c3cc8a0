"""Laws of every simulated run, as far as only the world around coordinators and consumers can check them."""
