"""What stands before a model, whoever computes it: policies, an exact cache, retries, validation, records."""
