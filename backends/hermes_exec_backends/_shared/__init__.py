"""What the backends of clouds share: how their sandboxes are marked, and a guard against cost."""
