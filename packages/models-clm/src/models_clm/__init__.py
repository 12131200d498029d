"""CLM for system1: two small heads over the embeddings of a frozen encoder."""
