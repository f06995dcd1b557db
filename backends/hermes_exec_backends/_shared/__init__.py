"""Code that several backends share: labels, leases, cleanup, checks, retries, and the cost guard."""
