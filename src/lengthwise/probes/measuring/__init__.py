"""What several probes share when they measure: trained runs, batches of test examples, and the attention of every layer."""
