"""What programs share that embed a coordinator: loading, waiting for answers, threads."""
