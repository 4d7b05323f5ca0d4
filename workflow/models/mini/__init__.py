"""Very small models of the true architectures, trained by the workflow itself."""
